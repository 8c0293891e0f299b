"""YAML and JSON documents of Kubernetes: read with positions, errors and duplicate keys."""

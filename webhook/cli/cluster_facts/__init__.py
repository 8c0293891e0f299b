"""Cluster facts for the manifests that a command checks, from a file or a live cluster."""

"""Manifests as kubectl reads them: files, documents, objects, and back to YAML."""

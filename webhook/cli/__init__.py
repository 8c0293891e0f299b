"""The command line: one module a command, `manifests` reads, `report` writes."""

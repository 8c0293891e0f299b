"""The FencePolicy document, its schema, and the default policy."""

"""The HTTP edge: listener, connections, TLS, limits, deadlines."""

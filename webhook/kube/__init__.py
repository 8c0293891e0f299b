"""Talking to an API server: connection, credentials, client, reflector, listing, errors."""

"""The audit: what a policy says of everything that is in a cluster now."""

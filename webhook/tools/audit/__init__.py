"""The audit: the findings of a policy for the objects of a cluster."""

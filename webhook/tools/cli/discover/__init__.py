"""``gpufence policy discover``: a policy for the nodes of a cluster."""

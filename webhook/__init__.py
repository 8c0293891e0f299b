"""How a decision reaches the world: the admission webhook and the command line."""

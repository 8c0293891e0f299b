"""The doctor: whether an installation does what it is there for, and what to do where not."""

"""The doctor: whether an installation works, and how to fix it."""

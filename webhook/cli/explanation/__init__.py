"""``gpufence explain``: a rule's page, or what happens to the Pods of a file."""

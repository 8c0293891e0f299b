"""One rule a file: ``set_*`` mutations and ``check_*`` checks."""

"""A replica: options, lifecycle, signals."""

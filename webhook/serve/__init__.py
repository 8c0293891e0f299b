"""A replica: options, lifecycle, policy reload, signals."""

"""Reports: one module a format, from results to output."""

"""Programs that people run: the command line, audits, doctor."""

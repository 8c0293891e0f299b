"""The decisions: policy document, rules and the engine. Pure: no I/O, no clock."""

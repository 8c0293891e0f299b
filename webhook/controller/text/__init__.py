"""What API servers decide themselves: constant text in CEL, which reads the policy as data.

Law: the match conditions are never narrower than the engine, and what an admission policy denies,
the engine denies. docs/concepts/outages.md lists what only the engine denies.
"""

"""What API servers decide themselves: constant text, which reads the policy as data.

The expressions are YAML files in this directory, in CEL. Match conditions say which requests
concern gpufence at all; the ValidatingAdmissionPolicies deny what the object alone decides, without
replica, network or certificate. In place of the words POLICY and NAMES, an expression has a literal
of what it may know of the policy (``data``); nothing else of it depends on the policy. Law: the
match conditions are never narrower than the engine, and what an admission policy denies, the engine
denies. docs/concepts/outages.md lists what only the engine denies.
"""

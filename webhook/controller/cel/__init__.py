"""What API servers decide themselves, compiled from the policy to CEL.

Match conditions say which requests concern gpufence at all; ValidatingAdmissionPolicies, the second
line of the fence, deny what the object alone decides, without replica, network or certificate. Both
are written in one vocabulary. Law: the match conditions are never narrower than the engine, and
what a policy rejects, the engine rejects. docs/concepts/outages.md lists what only the engine
rejects.
"""

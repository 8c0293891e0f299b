"""The second line of the fence: ValidatingAdmissionPolicies that the API server evaluates itself.

They are compiled from the policy and need no replica, no network and no certificate. They hold the
part of the fence that the object alone decides: a rule that needs cluster facts, or that judges a
Pod after its mutation, stays with the webhook. Law: what they reject, the engine rejects. What only
the engine rejects is listed in docs/concepts/second-line.md.
"""

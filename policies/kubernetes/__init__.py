"""Kubernetes' semantics, without a policy of ours."""

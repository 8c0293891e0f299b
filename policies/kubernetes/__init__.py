"""Kubernetes' semantics, without a policy of gpufence."""

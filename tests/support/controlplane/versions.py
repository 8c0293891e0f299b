"""Marks for tests of features that older supported versions of Kubernetes lack (`make compat`).

The version is the first with the feature on by default (kube_features.go in Kubernetes), or, for an
alpha feature, the first that has it.
"""

from __future__ import annotations

import pytest

RESIZE = pytest.mark.kubernetes("v1.33", "resizes of running Pods")
CLAIMS = pytest.mark.kubernetes("v1.34", "resource.k8s.io/v1")
EXTENDED_RESOURCES = pytest.mark.kubernetes("v1.36", "extended resources of device classes")
SUSPENDED_JOBS = pytest.mark.kubernetes("v1.36", "changes to the resources of suspended Jobs")
TAINT_RULES = pytest.mark.kubernetes("v1.37", "rules that taint devices")
STATIC_ADMISSION = pytest.mark.kubernetes("v1.36", "admission policies from files")

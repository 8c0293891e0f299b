"""Marks for tests of what not every supported Kubernetes has (see `make compat`).

The versions are those in which the feature is on by default (kube_features.go in Kubernetes). For
an alpha feature, they are those that have it.
"""

from __future__ import annotations

import pytest

CLAIMS = pytest.mark.kubernetes("v1.34", "resource.k8s.io/v1")
EXTENDED_RESOURCES = pytest.mark.kubernetes("v1.36", "extended resources of device classes")
SUSPENDED_JOBS = pytest.mark.kubernetes("v1.36", "changes to the resources of suspended Jobs")
STATIC_ADMISSION = pytest.mark.kubernetes("v1.36", "admission policies from files")

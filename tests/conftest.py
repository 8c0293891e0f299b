"""What all tests share: the real control plane, Kubernetes' own code, and Hypothesis' profile."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["controlplane.fixtures", "oracle.fixtures"]

settings.register_profile(
    "gpufence",
    # Machines are shared and noisy: time is bounded by pytest, not an example at a time.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("gpufence")

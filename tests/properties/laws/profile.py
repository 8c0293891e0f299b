"""How many examples a law is tried on: some, or as many as GPUFENCE_LAWS says.

The examples are the same in every run, unless GPUFENCE_RANDOM is set (tests/conftest.py).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

law = settings(
    max_examples=int(os.environ.get("GPUFENCE_LAWS", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

live_law = settings(
    law,
    max_examples=int(os.environ.get("GPUFENCE_LAWS", "30")),
    suppress_health_check=[HealthCheck.too_slow],
)
"""Each example sends several requests to a real API server."""

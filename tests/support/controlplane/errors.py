"""The one error of the control plane's tooling: what went wrong, and what to do about it."""

from __future__ import annotations


class ControlPlaneError(Exception):
    """Something outside of these tests is missing or failed. The message ends with the cure."""

"""The error of the control plane's tooling."""

from __future__ import annotations


class ControlPlaneError(Exception):
    """A program or service is missing or failed. The message states what to do."""

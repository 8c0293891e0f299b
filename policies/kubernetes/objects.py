"""Kubernetes API objects as parsed JSON."""

from __future__ import annotations

from typing import Any

JSONObject = dict[str, Any]
"""A JSON object. Nothing is dropped and no default is filled in."""

ObjectKey = tuple[str, str]
"""Namespace and name of an object."""

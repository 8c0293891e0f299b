"""The default policy and the presets, as YAML and ready for use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from policies.kubernetes.field_types import snake_case
from policies.policy import Policy

DEFAULT = Path(__file__).with_name("default.yaml")
"""The default policy."""
PRESETS = Path(__file__).with_name("presets")
"""Policies to start from, one file for each vendor, platform or scheduler."""


def default_policy_text() -> str:
    """Return the default policy as YAML, with its comments."""
    return DEFAULT.read_text(encoding="utf-8")


def preset_text(name: str) -> str:
    """Return a preset as YAML, with its comments."""
    return (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")


def shipped_policy() -> Policy:
    """Return the default policy.

    It is not validated: to import pydantic takes longer than checking a thousand Pods. A test
    validates it, and compares the two.
    """
    document = yaml.load(default_policy_text(), Loader=_LOADER)  # noqa: S506 - a safe loader
    return msgspec.convert(_with_field_names(document["spec"]), Policy, dec_hook=_made_of)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _with_field_names(value: Any) -> Any:
    """Return a part of the document with the names of fields for its keys. Others have none."""
    if isinstance(value, list):
        return [_with_field_names(item) for item in value]
    if isinstance(value, dict):
        return {snake_case(key): _with_field_names(item) for key, item in value.items()}
    return value


def _made_of(type_: type, patterns: list[str]) -> Any:
    """Return a NameSet, which documents hold as a list."""
    return type_(patterns)

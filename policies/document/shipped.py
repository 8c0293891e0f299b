"""Compiled policies as JSON, the compiled default policy, and the presets.

To validate a policy document takes pydantic, whose import alone takes longer than checking a
thousand Pods, and memory. A compiled policy is read without it. ``make generate``
validates default.yaml and compiles it to default.json; a test compares the two.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from policies.policy import Policy

COMPILED = Path(__file__).with_name("default.json")
PRESETS = Path(__file__).with_name("presets")
"""Policies to start from, one file for each vendor, platform or scheduler."""


def shipped_policy() -> Policy:
    """Return the default policy."""
    return decoded(COMPILED.read_bytes())


def preset_text(name: str) -> str:
    """Return a preset as YAML, with its comments."""
    return (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")


def encoded(policy: Policy) -> bytes:
    """Return the policy as JSON, which ``decoded`` reads."""
    return msgspec.json.encode(_given(policy))


def decoded(text: bytes) -> Policy:
    """Return the policy that ``encoded`` wrote: it is not validated again."""
    return msgspec.json.decode(text, type=Policy)


def compiled_text(policy: Policy) -> str:
    """Return the text of default.json for the policy, the same each time."""
    document = _given(policy, order="deterministic")
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _given(policy: Policy, order: Literal["deterministic"] | None = None) -> dict[str, Any]:
    """Return the policy's fields without those that follow from others."""
    document: dict[str, Any] = msgspec.to_builtins(policy, order=order)
    for follows_from_others in (field.name for field in fields(Policy) if not field.init):
        document.pop(follows_from_others, None)
    return document

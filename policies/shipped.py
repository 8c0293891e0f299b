"""The policy that ships with gpufence, compiled beforehand.

To validate a policy document takes pydantic, whose import alone takes longer than checking a
thousand Pods. What ships was validated when it was compiled: ``make render`` writes default.json
from default.yaml, and a test holds the two equal.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import msgspec

from policies.compiled import Policy

COMPILED = Path(__file__).with_name("default.json")


def shipped_policy() -> Policy:
    """Return the default policy."""
    return msgspec.json.decode(COMPILED.read_bytes(), type=Policy)


def compiled_text(policy: Policy) -> str:
    """Return the text of default.json for the policy, the same each time."""
    document = msgspec.to_builtins(policy, order="deterministic")
    for follows_from_others in (field.name for field in fields(Policy) if not field.init):
        document.pop(follows_from_others, None)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"

"""Policies of tests: the spec of a FencePolicy, and the object around it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import yaml

from policies.document import API_VERSION, KIND, parse_policy
from policies.policy import Policy
from policies.shipped import default_policy_text

JSON = dict[str, Any]


@cache
def _default_object() -> str:
    return json.dumps(yaml.safe_load(default_policy_text()))


def default_spec() -> JSON:
    """Return the spec of the default policy, which the test may change."""
    spec: JSON = json.loads(_default_object())["spec"]
    return spec


def fence_policy(spec: JSON, name: str = "gpufence") -> JSON:
    """Return the object with a spec."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def policy_of(spec: JSON) -> Policy:
    """Return the policy with a spec, which must be valid."""
    return parse_policy(fence_policy(spec))

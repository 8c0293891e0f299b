"""Compiled policies as JSON: the same as their documents, and loaded without what validates."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.document.model import parse_policy
from policies.document.shipped import COMPILED, compiled_text, decoded, encoded, shipped_policy
from policies.policy import Policy, Pool
from policies.registry import RULES
from strategies import policies

_NAMES = st.sampled_from(["ml", "research", "web", "kube-system"])
_PATTERNS = st.lists(st.sampled_from(["train", "train-*", "*", "é-*", '"{\n\u2028']))
_ACTIONS = st.dictionaries(
    st.sampled_from([rule.id for rule in RULES]),
    st.sampled_from(["off", "warn", "enforce"]),
    min_size=1,
)
_USER = st.none() | st.integers(1, 2**31 - 1)
_LABELS = st.dictionaries(
    st.sampled_from(["team", "tier", "example.com/cost"]), st.sampled_from(["", "a", "true", "1"])
)
_EXCEPTIONS = st.fixed_dictionaries(
    {"namespaces": st.lists(_NAMES, min_size=1), "reason": st.text(min_size=1)},
    optional={
        "rules": st.lists(st.sampled_from([rule.id for rule in RULES])),
        "kinds": st.lists(st.sampled_from(["Pod", "Deployment"])),
        "names": _PATTERNS.map(lambda names: [name for name in names if name]),
        "expires": st.none() | st.dates() | st.dates().map(str),
    },
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "failurePolicy": st.sampled_from(["Fail", "Ignore"]),
        "hardening": st.fixed_dictionaries(
            {}, optional={"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
        ),
        "rules": _ACTIONS,
        "exemptions": st.fixed_dictionaries(
            {},
            optional={
                "namespaces": st.lists(_NAMES),
                "usernames": st.lists(st.text(min_size=1)),
                "runtimeClasses": st.lists(st.just("kata")),
            },
        ),
        "overrides": st.lists(
            st.fixed_dictionaries({"namespaces": st.lists(_NAMES, min_size=1), "rules": _ACTIONS})
        ),
        "exceptions": st.lists(_EXCEPTIONS),
        "customWorkloads": st.lists(
            st.fixed_dictionaries(
                {
                    "group": st.sampled_from(["kubeflow.org", "ray.io"]),
                    "resources": st.lists(st.sampled_from(["rayjobs", "mpijobs"]), min_size=1),
                }
            )
        ),
    },
)
_POOL = st.fixed_dictionaries(
    {"nodeSelector": _LABELS.filter(bool)},
    optional={
        "taints": st.lists(
            st.fixed_dictionaries(
                {"key": st.sampled_from(["gpu", "team", "tier"])},
                optional={
                    "value": st.sampled_from([None, "", "true"]),
                    "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
                },
            )
        ),
        "runtimeClass": st.sampled_from([None, "nvidia"]),
        "largestRequest": st.none() | st.integers(min_value=1),
        "allowedNamespaces": st.none()
        | st.fixed_dictionaries(
            {"names": st.lists(_NAMES, min_size=1)},
            optional={"matchLabels": _LABELS, "unknown": st.sampled_from(["allow", "deny"])},
        ),
    },
)
_OFFERED: tuple[dict[str, Any], ...] = (
    {"resources": ["nvidia.com/gpu", "nvidia.com/mig-*"], "sharedResources": ["nvidia.com/gpu"]},
    {"resources": ["amd.com/*"], "deviceClasses": ["gpu.amd.com", "other.amd.com"]},
    {"deviceClasses": ["gpu.intel.com"]},
)
_POOLS = st.lists(_POOL, min_size=1, max_size=len(_OFFERED)).map(
    lambda pools: [
        {"name": f"pool-{number}", **_OFFERED[number], **pool} for number, pool in enumerate(pools)
    ]
)


def parts(value: Any) -> Any:
    """Return a policy's value as what can be compared, with the types of all, and in order.

    What follows from sets has none.
    """
    if isinstance(value, Policy | Pool):
        given = [(field, parts(getattr(value, field.name))) for field in fields(value)]
        return type(value).__name__, [
            sorted(part) if not field.init and isinstance(part, list) else part
            for field, part in given
        ]
    if isinstance(value, dict):
        return [(key, parts(item)) for key, item in value.items()]
    if isinstance(value, tuple):
        return type(value).__name__, [parts(item) for item in value]
    return type(value).__name__, value


def test_the_shipped_policy_round_trips_through_json() -> None:
    policy = shipped_policy()
    assert compiled_text(policy) == COMPILED.read_text()
    (pool,) = policy.pools
    classes = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
    assert policy.pools_of_class == dict.fromkeys(classes, (pool,))
    assert policy.pools_of_resource("nvidia.com/mig-1g.10gb") == (pool,)
    assert str(pool.taints[0]) == "nvidia.com/gpu:NoSchedule"
    assert "kube-system" in policy.exemptions.namespaces


def test_loading_the_shipped_policy_does_not_import_pydantic() -> None:
    program = """if True:
        import sys
        from policies.document.shipped import shipped_policy
        assert shipped_policy().pools
        assert "pydantic" not in sys.modules, "pydantic was imported"
    """
    subprocess.run([sys.executable, "-c", program], check=True)


@given(_POOLS, _FIELDS)
def test_any_policy_round_trips_through_json(
    pools: list[dict[str, Any]], others: dict[str, Any]
) -> None:
    document = {"apiVersion": "gpufence.dev/v1alpha1", "kind": "FencePolicy", "pools": pools}
    policy = parse_policy(document | others).compile()
    assert parts(decoded(encoded(policy))) == parts(policy)


@pytest.mark.parametrize("name", policies())
def test_the_policies_of_the_laws_round_trip_through_json(name: str) -> None:
    policy = policies()[name]
    assert parts(decoded(encoded(policy))) == parts(policy)

"""Overrides: which settings count in a namespace, by its name and its labels."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.catalog import TITLES
from policies.document import parse_policy
from policies.finding import ACTIONS
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.selector import NAMESPACE_LABEL
from policies.policy import Policy
from specs import default_spec, fence_policy

JSON = dict[str, Any]

LEVELS = ("restricted", "baseline", "off")
IDS = [*TITLES][:3]
PATTERNS = st.sampled_from(["a", "ab", "abc", "b", "*", "a*", "ab*", "b*", "a-*", "a-b*"])
REQUIREMENTS = st.sampled_from(
    [
        {"key": "tier", "operator": "In", "values": ["dev", "test"]},
        {"key": "tier", "operator": "NotIn", "values": ["dev"]},
        {"key": "team", "operator": "Exists"},
        {"key": "team", "operator": "DoesNotExist"},
        {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": ["ab"]},
    ]
)
SELECTORS = st.fixed_dictionaries(
    {"matchExpressions": st.lists(REQUIREMENTS, min_size=1, max_size=2)},
    optional={"matchLabels": st.just({"tier": "dev"})},
)
OVERRIDE = st.fixed_dictionaries(
    {"rules": st.dictionaries(st.sampled_from(IDS), st.sampled_from(ACTIONS), min_size=1)},
    optional={
        "mode": st.sampled_from(["enforce", "warn", "audit"]),
        "hardening": st.fixed_dictionaries(
            {"level": st.sampled_from(LEVELS)},
            optional={
                "warn": st.sampled_from(LEVELS),
                "version": st.sampled_from(["latest", "v1.33", "v1.36"]),
            },
        ),
    },
)
WHERE = st.fixed_dictionaries({"namespaces": st.lists(PATTERNS, min_size=1)}) | (
    st.fixed_dictionaries({"namespaceSelector": SELECTORS}, optional={"namespaces": st.just(["a"])})
)
OVERRIDES = st.lists(st.builds(lambda what, where: what | where, OVERRIDE, WHERE), max_size=4)
NAMESPACES = st.sampled_from(["a", "ab", "abc", "a-b", "b", "zz"])
LABELS = st.dictionaries(st.sampled_from(["tier", "team"]), st.sampled_from(["dev", "test", "x"]))


@given(OVERRIDES, NAMESPACES, st.none() | LABELS)
def test_law_the_last_override_counts_and_the_strictest_that_unknown_labels_may_select(
    overrides: list[JSON], namespace: str, labels: dict[str, str] | None
) -> None:
    policy = parse_policy(fence_policy(default_spec() | {"overrides": overrides}))
    possible = [labels] if labels is not None else [*EVERY_LABELS]
    expected = [merged(policy, overrides, namespace, each) for each in possible]
    actions = policy.actions_in(namespace, labels)
    own = policy.hardening_of(actions, policy.pools[:1])
    versions = {own.version, *actions.possible.get("version", ())}
    every = {each.pop() for each in expected}
    assert versions == every if labels is not None else versions >= every
    strictest = [min((each[n] for each in expected), key=order.index) for n, order in ORDERS]
    found = [actions.mode, own.level, own.warn, *(actions.written[rule] for rule in IDS)]
    if labels is not None:
        assert found == strictest
    # Of unknown labels, each override counts by itself.
    for one, most, (_, order) in zip(found, strictest, ORDERS, strict=True):
        assert order.index(one) <= order.index(most)


def merged(policy: Policy, overrides: list[JSON], namespace: str, labels: JSON) -> list[Any]:
    """Return mode, profiles, actions and version as the reference says: the last of each."""
    actions = (policy.rules[rule] for rule in IDS)
    found = [policy.mode, "restricted", "off", *actions, "latest"]
    for own in overrides:
        selector = own.get("namespaceSelector")
        if namespace in NameSet(own.get("namespaces", ())) or (
            selector and meets(selector, {**labels, NAMESPACE_LABEL: namespace})
        ):
            hardening = own.get("hardening", {})
            given = [own.get("mode"), hardening.get("level"), hardening.get("warn")]
            given += [*(own["rules"].get(rule) for rule in IDS), hardening.get("version")]
            found = [new or old for new, old in zip(given, found, strict=True)]
    return found


def meets(selector: JSON, labels: JSON) -> bool:
    has = {"In": True, "Exists": True, "NotIn": False, "DoesNotExist": False}
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and all(
        (each["key"] in labels and labels[each["key"]] in each.get("values", labels.values()))
        == has[each["operator"]]
        for each in selector["matchExpressions"]
    )


ORDERS = [*enumerate([("enforce", "warn", "audit"), LEVELS, LEVELS, ACTIONS, ACTIONS, ACTIONS])]
EVERY_LABELS = [
    {key: value for key, value in (("tier", tier), ("team", team)) if value}
    for tier in ("", "dev", "test", "x")
    for team in ("", "x")
]

"""What the constant text of the API server's half knows of the policy."""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any

import pytest
import yaml

from policies.kubernetes.field_types import IN_API_SERVER, IN_REPLICA, NameSet
from policies.policy import ExceptionEntry, Policy
from reviewing import default_policy
from specs import default_spec, policy_of
from strategies import policies
from webhook.controller.text.data import literal, names_for, names_of, policy_data
from webhook.controller.text.objects import IN_TREE_RULES

RULE = "pool-trespass"


def fields_of(part: type) -> dict[str, Any]:
    """Return the annotation of each field of a part, with what it says."""
    hints = typing.get_type_hints(part, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(part)}


def parts(of: Any = Policy) -> list[type]:
    """Return the types of all parts of the policy."""
    if isinstance(of, type) and dataclasses.is_dataclass(of):
        found = [of, *chain.from_iterable(map(parts, fields_of(of).values()))]
        return [*dict.fromkeys(found)]
    return [*dict.fromkeys(chain.from_iterable(map(parts, typing.get_args(of))))]


def marks(annotation: Any) -> list[str]:
    given = getattr(annotation, "__metadata__", ())
    return [each for each in given if each in (IN_API_SERVER, IN_REPLICA)]


def test_each_field_of_the_policy_says_whether_api_servers_know_it() -> None:
    said = {(part, name): marks(of) for part in parts() for name, of in fields_of(part).items()}
    unsaid = [field for field, found in said.items() if len(found) != 1]
    assert unsaid == [], "write InAPIServer[...] or InReplica[...] around the type of the field"


WITH_ALL = yaml.safe_load("""
pools:
  - name: small
    resources: [nvidia.com/gpu]
    fractionalResources: [nvidia.com/gpu]
    sharedResources: [nvidia.com/gpu]
    annotationRequests:
      - annotations: [gpu-fraction]
        schedulerName: kai-scheduler
        containerAnnotation: gpu-container
        countAnnotation: gpu-count
    deviceClasses: [gpu.nvidia.com]
    taints: [{key: nvidia.com/gpu, value: "true"}]
    nodeSelector: {nvidia.com/gpu.present: "true"}
    matchExpressions: [{key: size, operator: In, values: [small]}]
    allowedNamespaces:
      names: [team-*]
      matchLabels: {gpu: "yes"}
      matchExpressions: [{key: team, operator: Exists}]
    runtimeClass: nvidia
    hardening: {level: baseline}
    largestRequest: 8
    pricePerDeviceHour: 1.5
    requires: [{labels: {team: []}, queue: true, maxRuntime: 1h}]
exemptions: {namespaces: [a], usernames: [b], runtimeClasses: [c]}
overrides: [{namespaces: [lab], rules: {pool-trespass: warn}, mode: warn}]
exceptions:
  - {rules: [pool-trespass], namespaces: [legacy], kinds: [Pod], names: [web-*], reason: it moves,
     expires: 2027-01-01}
""")


def test_the_data_are_made_of_the_fields_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(default_spec() | WITH_ALL)
    for pool in policy.pools:
        # Its validation has read the fields already.
        del vars(pool)["selector"]
    read: set[tuple[str, str]] = set()
    for part in parts():
        own = fields_of(part)

        def recording(self: Any, name: str, part: Any = part, own: Any = own) -> Any:
            if name in own:
                read.add((part.__name__, name))
            return object.__getattribute__(self, name)

        monkeypatch.setattr(part, "__getattribute__", recording)
    names_of(policy)
    policy_data(policy)
    names_for(RULE, policy, date(2026, 1, 1))
    monkeypatch.undo()
    known = {
        (part.__name__, name)
        for part in parts()
        for name, annotation in fields_of(part).items()
        if IN_API_SERVER in marks(annotation)
    }
    of_objects = {
        ("Policy", "failure_policy"),
        ("Policy", "custom_workloads"),
        ("CustomWorkloads", "group"),
        ("CustomWorkloads", "resources"),
        ("Exemptions", "namespaces"),
    }
    # The operator follows from the values.
    assert known - read == {*of_objects, ("NodeRequirement", "operator")}
    # The actions of a namespace come with its hardening. Nothing of it is in the data.
    assert read - known == {("Override", "hardening")}


def test_literals_of_cel(subtests: pytest.Subtests) -> None:
    for value, expected in (
        ("a", '"a"'),
        ('"\n\\😀é', r'"\"\n\\😀é"'),
        (True, "true"),
        ([], "[]"),
        (["a", "b"], '["a", "b"]'),
        ({"a": 1, "b": ["c"]}, '{"a": dyn(1), "b": dyn(["c"])}'),
        ([{"a": {"b": "c"}}], '[{"a": dyn({"b": dyn("c")})}]'),
        (["x" * 50, "y" * 50], f'[\n  "{"x" * 50}",\n  "{"y" * 50}"\n]'),
    ):
        with subtests.test(value=value):
            assert literal(value) == expected


OVERRIDES = [
    {"namespaces": ["team-*", "lab"], "rules": {"pool-trespass": "warn"}},
    {"namespaces": ["team-a-*"], "rules": {"pool-trespass": "enforce"}},
    {"namespaces": ["team-a-1"], "rules": {"pool-trespass": "audit", "device-leak": "off"}},
    {"namespaces": ["la*"], "rules": {"device-leak": "warn"}},
    {"namespaces": ["quiet"], "mode": "audit"},
]


@pytest.mark.parametrize("rule", IN_TREE_RULES)
def test_law_the_first_entry_that_fits_a_namespace_agrees_with_the_engine(
    rule: str, subtests: pytest.Subtests
) -> None:
    everywhere = {"namespaces": ["*"], "rules": {rule: "warn"}}
    for overrides in (OVERRIDES, [*OVERRIDES, everywhere]):
        policy = policy_of(default_spec() | {"overrides": overrides})
        entries, modes = names_for(rule, policy, None), names_of(policy)
        for namespace in ("team-x", "team-a-1", "team-a-2", "team", "lab", "labs", "a", "quiet"):
            with subtests.test(namespace=namespace, overrides=overrides):
                actions = policy.actions_in(namespace)
                found = first(entries["namespaces"], namespace)
                assert found["denies"] is (actions[rule] == "enforce")
                found = first(modes["namespaces"], namespace)
                assert found["enforces"] is (actions.mode == "enforce")


def first(entries: list[dict[str, Any]], namespace: str) -> dict[str, Any]:
    """Return the first entry that fits the namespace, as the text does."""
    return next(each for each in entries if namespace in NameSet([each["name"]]))


def excepting(**fields: Any) -> Policy:
    given: dict[str, Any] = {
        "rules": frozenset({RULE}),
        "namespaces": NameSet(["legacy", "old-*"]),
        "kinds": frozenset({"Deployment"}),
        "names": NameSet(["web-*"]),
        "reason": "moves next month",
        "expires": date(2027, 3, 1),
    }
    return replace(default_policy(), exceptions=(ExceptionEntry(**{**given, **fields}),))


def test_exceptions_of_other_rules_and_expired_ones_are_no_data() -> None:
    assert names_for(RULE, excepting(rules=frozenset()), None)["exceptions"]
    other = excepting(rules=frozenset({"device-leak"}))
    assert not names_for(RULE, other, None)["exceptions"]
    assert names_for(RULE, excepting(), date(2027, 2, 28))["exceptions"]
    assert not names_for(RULE, excepting(), date(2027, 3, 1))["exceptions"]


def test_the_data_are_values_of_json() -> None:
    data = [
        each
        for policy in policies().values()
        for each in (names_of(policy), names_for(RULE, policy, None), policy_data(policy))
    ]
    assert json.loads(json.dumps(data)) == data


def test_every_name_by_which_a_pod_can_reach_a_pool_is_in_the_names() -> None:
    for policy in policies().values():
        names = names_of(policy)
        fences = chain.from_iterable(pool.fence for pool in policy.pools)
        assert {taint.key for taint in fences} == {*names["taints"]}
        assert {key for pool in policy.pools for key in pool.selector} == {*names["nodeLabels"]}

"""What the constant text of the API server's half knows of the policy."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any

import pytest
import yaml

from policies.api_servers import (
    IN_TREE_RULES,
    LONGEST_LITERAL,
    literal,
    names_for,
    names_of,
    policy_data,
)
from policies.document import PolicyError
from policies.kubernetes.field_types import IN_API_SERVER, IN_REPLICA, NameSet
from policies.policy import ExceptionEntry, Policy
from reviewing import default_policy
from specs import default_spec, policy_of
from strategies import policies
from webhook.controller.text.objects import Registration, admission_policies, configurations

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
exemptions: {namespaces: [a], usernames: [b]}
overrides:
  - namespaces: [lab]
    namespaceSelector:
      matchLabels: {tier: dev}
      matchExpressions: [{key: team, operator: NotIn, values: [a, b]}]
    rules: {pool-trespass: warn}
    mode: warn
exceptions:
  - {rules: [pool-trespass], namespaces: [legacy], kinds: [Pod], names: [web-*], reason: it moves,
     expires: 2027-01-01}
""")


def test_the_data_are_made_of_the_fields_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(default_spec() | WITH_ALL)
    # Its validation has read the fields already.
    policy = replace(policy, pools=tuple(map(replace, policy.pools)))
    for pool in policy.pools:
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
    names_for(RULE, policy)
    policy_data(RULE, policy, date(2026, 1, 1))
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
    assert known - read == of_objects
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
        entries, modes = names_for(rule, policy), names_of(policy)
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


def exceptions(policy: Policy, today: date | None = None) -> Any:
    return policy_data(RULE, policy, today)["exceptions"]


def test_api_servers_know_the_exceptions_that_they_need() -> None:
    """Replicas know those of other rules and kinds, and the expired ones."""
    entry = [["legacy", "old-*"], ["Deployment"], ["web-*"], ["2027-03-01"]]
    assert exceptions(excepting(), date(2027, 2, 28)) == [entry]
    assert exceptions(excepting(), date(2027, 3, 1)) == []
    assert exceptions(excepting(rules=frozenset({"device-leak"}))) == []
    alike = *excepting().exceptions, *excepting(names=NameSet(["app"])).exceptions
    [entry] = exceptions(replace(default_policy(), exceptions=alike))
    assert entry[2] == ["app", "web-*"], "they differ only in names"
    for kinds, known in (
        ({"PyTorchJob", "Deployment"}, [["Deployment"]]),
        ({"PyTorchJob", "DaemonSet"}, []),
        ((), [[]]),
    ):
        assert [each[1] for each in exceptions(excepting(kinds=frozenset(kinds)))] == known


def test_a_policy_that_exceeds_what_api_servers_accept_is_invalid() -> None:
    def longest(count: int, names: int = 2) -> int:
        entries = [
            {
                "rules": [RULE],
                "namespaces": [f"team-{n % 40}-production"],
                "kinds": ["Deployment"],
                "names": [f"inference-{n}-{of}" for of in range(names)],
                "reason": "it ran before gpufence",
            }
            for n in range(count)
        ]
        policy, where = policy_of(default_spec() | {"exceptions": entries}), Registration()
        return max(
            map(len, texts([admission_policies(policy, where), configurations(policy, where)]))
        )

    assert longest(0) < 100_000 - LONGEST_LITERAL, "room for the text"
    assert 50_000 < longest(1000) < 100_000
    with pytest.raises(PolicyError, match="accept 90,000; let an exception or override cover"):
        longest(1000, names=5)


def texts(part: Any) -> Iterator[str]:
    """Yield each string in an object."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list | tuple):
        for each in part.values() if isinstance(part, dict) else part:
            yield from texts(each)


def test_the_data_are_values_of_json() -> None:
    data = [
        each
        for policy in policies().values()
        for each in (names_of(policy), names_for(RULE, policy), policy_data(RULE, policy))
    ]
    assert json.loads(json.dumps(data)) == data


def test_every_name_by_which_a_pod_can_reach_a_pool_is_in_the_names() -> None:
    for policy in policies().values():
        names = names_of(policy)
        fences = chain.from_iterable(pool.fence for pool in policy.pools)
        assert {taint.key for taint in fences} == {*names["taints"]}
        assert {key for pool in policy.pools for key in pool.selector} == {*names["nodeLabels"]}

"""The comparison of two policies: each field, changes judged by hand, and what it proves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from datetime import date
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
import yaml

from dumped import manifests
from each import each
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.field_types import camel_case
from policies.policy import Policy
from policies.registry import RULES
from policies.shipped import PRESETS
from running import Run
from specs import JSON, fence_policy, policy_of
from webhook.cluster.manifests import facts_among
from webhook.tools.cli.evaluate import evaluate
from webhook.tools.cli.policy_diff.comparison import Comparison, Effect, Effects, compare
from webhook.tools.cli.policy_diff.pods import classes, objects_of, spaces

TODAY = date(2026, 1, 1)

IS_LAW = int(os.environ.get("GPUFENCE_LAWS", "100")) > 500
_FILE = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())
BASE: JSON = _FILE["policy"]
CHANGES: dict[str, JSON] = _FILE["changes"]
TRIED = [name for name, change in CHANGES.items() if IS_LAW or {"says", "alike"} & change.keys()]


def changed(spec: JSON, values: JSON) -> JSON:
    """Return the spec with other values, by their path."""
    spec = deepcopy(spec)
    for path, value in values.items():
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
        part: Any = spec
        for step in steps:
            part = part[step]
        if value is None:
            del part[last]
        else:
            part[last] = part[last][::-1] if value == "reversed" else value
    return spec


def specs(name: str) -> tuple[JSON, JSON]:
    """Return the specs before and after a change: with the pools that differ, and one more."""
    sides = BASE, changed(BASE, CHANGES[name]["set"])
    if IS_LAW or sides[1]["pools"] == BASE["pools"][::-1]:
        return sides
    left = [pool for pool in BASE["pools"][2:] if pool in sides[1]["pools"]]
    old, new = (s | {"pools": [pool for pool in s["pools"] if pool not in left]} for s in sides)
    return old, new


@cache
def comparison(name: str) -> Comparison:
    old, new = map(policy_of, specs(name))
    return compare(old, new, TODAY)


def leaves(part: type, path: str = "") -> Iterator[str]:
    """Yield the path of each field of a type that is not a part itself."""
    hints = get_type_hints(part)
    for own in fields(part):
        place = f"{path}.{camel_case(own.name)}".removeprefix(".")
        inner = next(iter(parts_in(hints[own.name])), None)
        yield from leaves(inner, place) if inner else [place]


def parts_in(hint: Any) -> Iterator[type]:
    if is_dataclass(hint):
        yield hint  # type: ignore[misc]
    for own in get_args(hint):
        yield from parts_in(own)


def test_each_field_of_a_policy_has_a_change() -> None:
    assert {*leaves(Policy)} <= CHANGES.keys()


@pytest.mark.slow("compares two policies for each change")
def test_what_it_says_of_each_change() -> None:
    def holds(name: str) -> None:
        found, change = comparison(name), CHANGES[name]
        assert found.is_alike == ("alike" in change)
        assert bool(found.consequences) == ("alike" not in change and change.get("seen", True))
        said = "\n".join(map(str, (*found.fields, *found.consequences, *found.notes)))
        wanted = [*change.get("says", [])]
        wanted += ["(no compared Pod shows a difference"] * ("seen" in change)
        assert not [part for part in wanted if part not in said], said

    each(TRIED, holds)


@pytest.mark.slow("runs check with two policies for each change")
def test_check_decides_on_the_examples_as_it_says(gpufence: Run) -> None:
    def holds(name: str) -> None:
        # check has no user. Pods that need another object are alone: these have one name.
        shown = [own for own in comparison(name).examples if "of user" not in own.name]
        shown = [own for own in shown if len(own.objects) == 1][: None if IS_LAW else 6]
        Path("pods.yaml").write_text("---\n".join(own.yaml for own in shown))
        for spec, side in zip(specs(name), ("before", "after"), strict=True):
            Path("policy.yaml").write_text(yaml.safe_dump(fence_policy(spec)))
            done = gpufence("check", "--policy", "policy.yaml", "--output", "json", "pods.yaml")
            assert done.verdicts == [getattr(own, side) for own in shown]

    each([name for name in TRIED if comparison(name).consequences], holds)


def test_the_classes_have_to_do_with_each_rule() -> None:
    every = dict.fromkeys((rule.id for rule in RULES), "enforce")
    policy = policy_of(BASE | {"rules": every, "overrides": [], "exceptions": []})
    found = set[str]()
    for own, namespace in product(dict.fromkeys(classes(policy, policy)), ("default", "ml")):
        objects = objects_of(own, namespace)
        read = manifests(objects)
        facts = partial(with_runtime_classes, facts_among(read, namespace))
        for result in evaluate(read, policy, Request(today=TODAY), facts_in=facts):
            found |= {finding.rule for finding in result.findings} | {*result.decision.mutations}
    # These depend on what runs in the cluster, and on its nodes.
    assert every.keys() - found <= {"missing-device", "oversized-gang", "stranded-devices"}


def with_runtime_classes(facts_in: Callable[[str], Facts], namespace: str) -> Facts:
    return msgspec.structs.replace(facts_in(namespace), runtime_classes={"nvidia": "nvidia"})


def test_of_several_fields_each_counts_alone() -> None:
    values = {"rules": {"device-leak": "warn"}, "exceptions/0/kinds": ["PyTorchJob", "Deployment"]}
    old, new = (
        policy_of(spec | {"pools": spec["pools"][:1]}) for spec in (BASE, changed(BASE, values))
    )
    found = compare(old, new, TODAY)
    assert [(own.path, bool(own.remark)) for own in found.fields] == [
        ("rules[device-leak]", False),
        ("exceptions[0].kinds", True),
    ]


def test_the_home_namespace_is_one_that_no_pattern_matches() -> None:
    def holds(pattern: str) -> None:
        override = {"namespaces": [pattern, "other", "lab"], "mode": "warn"}
        policy = policy_of(BASE | {"overrides": [override]})
        home, *others = spaces(policy, policy_of(BASE))
        assert policy.actions_in(home.name) is policy.general
        by_pattern = {own.pattern: own.name for own in others}
        assert {pattern, "other", "lab", "dev-*", "team-*"} <= by_pattern.keys()
        assert re.fullmatch(f"{pattern[:-1]}[a-z]", by_pattern[pattern])

    each(["de*", "d*", "default*", "x*"], holds)


def test_a_bug_of_a_rule_ends_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    old = policy_of(BASE | {"pools": BASE["pools"][:1]})
    new = replace(old, mode="warn")

    def fails(obj: Any, policy: Policy, *facts: Any, **options: Any) -> Any:
        if policy is new:
            raise ZeroDivisionError
        return decide(obj, policy, *facts, **options)

    monkeypatch.setattr("webhook.cluster.judge.decide", fails)
    found = [str(own) for own in compare(old, new, TODAY).consequences]
    assert [text.partition(":")[0] for text in found] == [
        "Allowed before, failed now",
        "Denied before, failed now",
    ]


def test_a_preset_is_equal_to_itself() -> None:
    for preset in sorted(PRESETS.iterdir()):
        own = policy_of(yaml.safe_load(preset.read_text())["spec"])
        assert compare(own, own, TODAY).is_alike


def test_rules_that_change_equally_often_are_in_the_order_of_the_alphabet() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    found = frozenset(Effect(name, "warn", "spec", "reason") for name in reversed(names))
    before, after = {"Job/train": Effects("allowed", found)}, {"Job/train": Effects("allowed")}
    [consequence] = compare(policy_of(BASE), policy_of(BASE), TODAY, before, after).consequences
    assert consequence.rules == ["a, b, c, d, e and f: warned about before"]

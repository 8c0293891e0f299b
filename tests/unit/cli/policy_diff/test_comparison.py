"""The comparison of two policies: each field, changes judged by hand, and generated Pods.

``make laws`` makes the comparisons of all changes, with all pools; others those of ``always``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
import yaml

from policies.decision import Decision
from policies.engine import decide
from policies.kubernetes.field_types import camel_case
from policies.policy import ALWAYS_EXCLUDED, Policy
from policies.registry import RULES
from policies.shipped import PRESETS
from running import Run
from specs import default_spec, fence_policy, policy_of
from unit.cli.policy_diff.generated import TODAY, Pods
from webhook.tools.cli.policy_diff.comparison import Comparer, Comparison, compare
from webhook.tools.cli.policy_diff.differences import answer_of, difference_in, pods
from webhook.tools.cli.policy_diff.traits import Trait

JSON = dict[str, Any]

COUNT = int(os.environ.get("GPUFENCE_LAWS", "100"))
IS_LAW = COUNT > 500
_FILE = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())
BASE: JSON = _FILE["policy"]
CHANGES: dict[str, JSON] = _FILE["changes"]
TRIED = [name for name, change in CHANGES.items() if IS_LAW or change.get("always")]
WITHOUT_EFFECT = [name for name, change in CHANGES.items() if not change.get("says")]
WITHOUT_EFFECT = WITHOUT_EFFECT if IS_LAW else WITHOUT_EFFECT[::3]


def changed(change: JSON) -> JSON:
    """Return the spec with the change."""
    spec = deepcopy(BASE)
    for path, value in change.get("set", {}).items():
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
        part: Any = spec
        for step in steps:
            part = part[step]
        if value is None:
            del part[last]
        else:
            part.update({last: value}) if isinstance(part, dict) else part.__setitem__(last, value)
    if "last" in change:
        # Pools that share a device keep their order: it decides on the order of tolerations.
        own = spec[change["last"]]
        spec[change["last"]] = own[2:] + own[:2] if len(own) > 2 else own[::-1]
    return spec


@cache
def comparison(name: str) -> Comparison:
    old, new = map(policy_of, specs(name))
    return compare(old, new, TODAY)


def specs(name: str) -> tuple[JSON, JSON]:
    """Return the specs before and after a change: with the pools that differ, and one more."""
    change, sides = CHANGES[name], (BASE, changed(CHANGES[name]))
    if IS_LAW or "last" in change:
        return sides
    left = [p for p in BASE["pools"] if p["name"] != "h100" and p in sides[1]["pools"]]
    old, new = (s | {"pools": [p for p in s["pools"] if p not in left]} for s in sides)
    return old, new


def generated(name: str, count: int) -> Iterator[tuple[Any, Decision, Decision]]:
    """Yield generated Pods, each with the decisions of the policies before and after a change."""
    pods = Pods(7)
    policies = [*map(policy_of, specs(name))]
    for pod, request, known in (pods.one() for _ in range(count)):
        old, new = (
            decide(pod, policy, request, known, excluded_namespaces=ALWAYS_EXCLUDED)
            for policy in policies
        )
        yield pod, old, new


def leaves(part: type, path: str = "") -> Iterator[str]:
    """Yield the path of each field of a type that is not a part itself."""
    hints = get_type_hints(part)
    for each in fields(part):
        own = f"{path}.{camel_case(each.name)}".removeprefix(".")
        inner = next(iter(parts_in(hints[each.name])), None)
        yield from leaves(inner, own) if inner else [own]


def parts_in(hint: Any) -> Iterator[type]:
    if is_dataclass(hint):
        yield hint  # type: ignore[misc]
    for each in get_args(hint):
        yield from parts_in(each)


def test_each_field_of_a_policy_has_a_change() -> None:
    assert {*leaves(Policy)} <= CHANGES.keys()


@pytest.mark.slow("compares two policies for each change")
def test_what_it_says_of_each_change() -> None:
    wrong = []
    for name in TRIED:
        found, change = comparison(name), CHANGES[name]
        said = [part for each in found.differences for part in (each.sentence, *each.causes)]
        said += found.elsewhere
        wanted = change.get("says", [])
        wrong += [(name, part) for part in wanted if not any(part in text for text in said)]
        omitted = change.get("omits", [])
        wrong += [(name, part) for part in omitted if any(part in text for text in said)]
        if bool(wanted) == found.is_equal:
            wrong.append((name, said))
    assert not wrong


@pytest.mark.slow("runs check with two policies for each change")
def test_check_decides_on_the_smallest_pods_as_it_says(gpufence: Run) -> None:
    wrong = []
    for name in TRIED:
        paths = "old.yaml", "new.yaml"
        for path, spec in zip(paths, specs(name), strict=True):
            Path(path).write_text(yaml.safe_dump(fence_policy(spec)))
        # check has no user. Pods that need another object are alone: these have one name.
        shown = [each for each in comparison(name).differences if "of user" not in each.sentence]
        runs = [[each] for each in shown if len(each.smallest) > 1]
        for run in ([each for each in shown if len(each.smallest) == 1], *runs):
            Path("smallest.yaml").write_text("---\n".join(each.yaml for each in run))
            for path, side in zip(paths, ("before", "after"), strict=True):
                done = gpufence("check", "--policy", path, "--output", "json", "smallest.yaml")
                said = [getattr(each, side) for each in run]
                found = [each for each in done.verdicts if each != "skipped"] if run else []
                if found != said:
                    wrong.append((name, path, said, found))
    assert not wrong


def test_a_sentence_names_some_of_many_values_and_kinds_of_pods() -> None:
    classes = [frozenset({Trait("device", f"request {n}")}) for n in range(7)]
    assert pods(classes) == ["Pods that request 0, 1, 2, 3 or 3 more"]
    assert pods(classes[:5]) == ["Pods that request 0, 1, 2, 3 or 4"]
    found = difference_in([*"abcde"], [Decision({}), Decision({})], [], [])
    assert found.sentence.endswith(": a; b; c; and 2 more kinds of Pods")


def test_the_classes_have_to_do_with_each_rule() -> None:
    every = dict.fromkeys((rule.id for rule in RULES), "enforce")
    policy = policy_of({**BASE, "rules": every, "overrides": [], "exceptions": []})
    answers = Comparer(policy, replace(policy, mode="audit"), TODAY).answers.values()
    assert every.keys() == {rule for answer in answers for rule, _ in answer.effects[0]}


def test_a_change_of_one_character_in_the_default_policy_is_shown() -> None:
    for edits in (
        {
            '"key": "nvidia.com/gpu"': '"key": "nvidia.com/gpU"',
            "gpu.present": "gpu.presenT",
            "gpu.shared": "gpu.sharec",
        },
        {"mig-": "mih-", '"true"': '"True"', "vfio.gpu": "vfip.gpu"},
        {"65532": "65531"},
        {"gpu-operator-resources": "gpu-operator-resource", "gpufence-system": "gpufence-systen"},
    ):
        text = json.dumps(default_spec())
        for before, after in edits.items():
            assert before in text
            text = text.replace(before, after)
        found = compare(policy_of(default_spec()), policy_of(json.loads(text)), TODAY)
        shown = json.dumps(msgspec.to_builtins(found.differences))
        assert not [after for after in edits.values() if after not in shown]


def test_a_preset_is_equal_to_itself() -> None:
    for preset in sorted(PRESETS.iterdir()):
        own = policy_of(yaml.safe_load(preset.read_text())["spec"])
        assert compare(own, own, TODAY).is_equal


@pytest.mark.slow("compares two policies for each change")
def test_no_generated_pod_differs_where_the_comparison_finds_nothing() -> None:
    print(f"\n{COUNT:,} Pods, {len(WITHOUT_EFFECT)} changes: {WITHOUT_EFFECT}")
    for name in WITHOUT_EFFECT:
        assert comparison(name).is_equal, name
        for pod, old, new in generated(name, COUNT):
            assert not answer_of(old, new).changes, (name, pod)


@pytest.mark.slow("compares two policies for each change")
def test_the_comparison_names_what_differs_for_generated_pods() -> None:
    """Except for Pods with devices of several pools, and Pods that both policies deny."""
    found, missed, count = Counter[str](), list[object](), min(COUNT, 1000)
    for name in TRIED:
        named = comparison(name)
        rules = {own.rule for each in named.differences for own in each.rules}
        rules |= {rule.id for rule in RULES if rule.id in str(named.elsewhere)}
        for pod, old, new in generated(name, count):
            kind = "several pools" if len({*old.pools, *new.pools}) > 1 else "one pool"
            kind = kind if old.allowed or new.allowed else "denied by both"
            for one in answer_of(old, new).changes:
                found[f"{kind}, {'named' if one.rule in rules else 'not named'}"] += 1
                if kind == "one pool" and one.rule not in rules:
                    missed.append((name, one, pod))
    print(f"\nfindings and mutations that differ: {dict(found)}")
    assert not missed

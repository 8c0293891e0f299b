"""The comparison of two policies: each field, changes judged by hand, and the smallest Pods."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from policies.kubernetes.field_types import camel_case
from policies.policy import Policy
from policies.registry import RULES
from policies.shipped import PRESETS
from running import Run
from specs import default_spec, fence_policy, policy_of
from webhook.tools.cli.policy_diff.comparison import Comparer, Comparison, compare

JSON = dict[str, Any]

TODAY = date(2026, 1, 1)
_FILE = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())
BASE: JSON = _FILE["policy"]
CHANGES: dict[str, JSON] = _FILE["changes"]
WITHOUT_EFFECT = [name for name, change in CHANGES.items() if not change.get("says")]
TRIED = [*CHANGES] if int(os.environ.get("GPUFENCE_LAWS", "0")) > 500 else [*CHANGES][::12]
"""A comparison takes about a second: `make laws` makes all of them."""


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
    return compare(policy_of(BASE), policy_of(changed(CHANGES[name])), TODAY)


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
        if bool(wanted) == found.is_equal:
            wrong.append((name, said))
    assert not wrong


def test_check_decides_on_the_smallest_pods_as_it_says(gpufence: Run) -> None:
    wrong = []
    for name in TRIED:
        specs = {"old.yaml": BASE, "new.yaml": changed(CHANGES[name])}
        for path, spec in specs.items():
            Path(path).write_text(yaml.safe_dump(fence_policy(spec)))
        for each in comparison(name).differences:
            if "of user" in each.sentence:
                continue  # check has no user.
            Path("smallest.yaml").write_text(each.yaml)
            for path, verdict in zip(specs, (each.before, each.after), strict=True):
                done = gpufence("check", "--policy", path, "smallest.yaml")
                if (done.status == 0) != (verdict != "denied"):
                    wrong.append((name, each.sentence, done.out))
    assert not wrong


def test_the_classes_have_to_do_with_each_rule() -> None:
    every = dict.fromkeys((rule.id for rule in RULES), "enforce")
    policy = policy_of({**BASE, "rules": every, "overrides": [], "exceptions": []})
    comparer = Comparer(policy, replace(policy, mode="audit"), TODAY)
    comparer.run()
    assert every.keys() == {rule for before, _ in comparer.answers.values() for rule in before}


def test_pools_that_differ_only_in_names_are_compared_once() -> None:
    spec: JSON = {"pools": []}
    for n, level in enumerate(("restricted", "restricted", "baseline", "off")):
        pool: JSON = {
            "name": f"p{n}",
            "resources": ["nvidia.com/gpu"],
            "nodeSelector": {"m": f"m{n}"},
        }
        pool |= {"hardening": {"level": level}, "taints": [{"key": "gpu", "value": f"v{n}"}]}
        spec["pools"].append(pool)
    old, new = policy_of(spec), policy_of({**spec, "exemptions": {"usernames": ["m1"]}})
    assert Comparer(old, old, TODAY).alike == {"p0": ["p1"], "p2": [], "p3": []}
    assert Comparer(old, new, TODAY).alike == {"p0": [], "p1": [], "p2": [], "p3": []}


@pytest.mark.slow("compares two policies for each change")
def test_one_character_of_the_default_policy_is_noticed() -> None:
    text = json.dumps(default_spec())
    edits = {
        '"nvidia.com/gpu",': '"nvidia.com/gpv",',
        "nvidia.com/gpu.shared": "nvidia.com/gpu.sharec",
        "nvidia.com/mig-*": "nvidia.com/mig*",
        "mig.nvidia.com": "mih.nvidia.com",
        "gpu.present": "gpu.presenT",
        '"true"': '"True"',
        '"key": "nvidia.com/gpu"': '"key": "nvidia.com/gpU"',
        "65532": "65531",
        "gpu-operator-resources": "gpu-operator-resource",
        "gpufence-system": "gpufence-systen",
    }
    for before, after in edits.items():
        new = json.loads(text.replace(before, after))
        if "gpu.shared" in before:
            assert new["pools"][0]["sharedResources"] == ["nvidia.com/gpu.sharec"]
        assert not compare(policy_of(default_spec()), policy_of(new), TODAY).is_equal, before


def test_a_preset_is_equal_to_itself_and_differs_from_the_default() -> None:
    default = policy_of(default_spec())
    for preset in sorted(PRESETS.iterdir()):
        own = policy_of(yaml.safe_load(preset.read_text())["spec"])
        assert compare(own, own, TODAY).is_equal
    assert compare(default, own, TODAY).differences

"""The policy document: accepted values, messages about mistakes, and its JSON schema.

Editors and helm use the JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cases.loading import HERE, load_all, policy_spec
from each import each
from paths import CHART, PROJECT
from policies.catalog import DEFAULT_ACTIONS
from policies.document import FencePolicy, PolicyError, parse_policy
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.kinds import WELL_KNOWN, CustomWorkloads
from policies.policy import EffectiveHardening, Policy
from policies.registry import RULES
from policies.schema import json_schema
from policies.shipped import PRESETS, default_policy_text, shipped_policy
from specs import fence_policy, policy_of
from webhook.tools.cli.policy_diff.fields import document as normal_form

JSON = dict[str, Any]

POOL: JSON = {
    "name": "nvidia",
    "resources": ["nvidia.com/gpu"],
    "taints": [{"key": "nvidia.com/gpu"}],
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
}


# Each as a validator, because jsonschema.validate also validates the schema, each time.
SCHEMA = Draft202012Validator(json_schema(FencePolicy))
VALUES = Draft202012Validator(
    {
        "$ref": "#/$defs/Policy",
        "$defs": json.loads((CHART / "values.schema.json").read_text())["$defs"],
    }
)
"""The schema of the chart's value policy: the spec."""

PRESENT: JSON = {"key": "nvidia.com/gpu.present", "operator": "Exists"}


def document(*pools: JSON, **fields: Any) -> JSON:
    return fence_policy({"pools": list(pools or [POOL]), **fields})


def schemas_accept(given: JSON) -> list[bool]:
    """Return whether the schema of policies and the one of the chart's values accept a policy."""
    return [SCHEMA.is_valid(given), VALUES.is_valid(given["spec"])]


def pool(**fields: Any) -> JSON:
    return {**POOL, **fields}


def allowing(**allowed: Any) -> JSON:
    return document(pool(allowedNamespaces=allowed))


def problems(given: Any) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(given)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return list(caught.value.problems)


def settings(policy: Policy) -> JSON:
    """Return all that a policy sets, its rules in order."""
    set_by_it = {field.name: asdict(policy)[field.name] for field in fields(Policy)}
    return {**set_by_it, "rules": list(policy.rules.items())}


class TestDefaultPolicy:
    def test_the_default_policy_equals_a_policy_without_optional_settings(self) -> None:
        given = policy_spec("default")
        short = {key: given[key] for key in ("pools", "exemptions")}
        message, meant = (policy_of(one) for one in (given, short))
        assert message.effective_hardening == meant.effective_hardening
        assert message.rules == meant.rules
        assert (message.failure_policy, message.custom_workloads) == ("Fail", WELL_KNOWN)
        assert (meant.failure_policy, meant.custom_workloads) == ("Fail", WELL_KNOWN)

    def test_the_shipped_file_is_the_default_policy(self) -> None:
        (document,) = load_all(default_policy_text())
        assert settings(shipped_policy()) == settings(parse_policy(document))


@pytest.mark.parametrize(
    "file", [*sorted(PRESETS.glob("*.yaml")), *sorted((HERE / "policies").glob("*.yaml"))]
)
def test_every_policy_on_disk_is_valid(file: Any) -> None:
    (given,) = load_all(file.read_text())
    assert parse_policy(given).pools


class TestCompiledDocument:
    def test_a_taint_defaults_to_any_value_and_effect_no_schedule(self) -> None:
        (taint,) = parse_policy(document()).pools[0].taints
        assert (taint.value, taint.effect) == (None, "NoSchedule")

    def test_a_rule_that_is_not_listed_has_its_default_action(self) -> None:
        policy = parse_policy(document(rules={"pool-trespass": "audit"}))
        assert policy.rules["pool-trespass"] == "audit"
        others = [rule for rule in RULES if rule.id != "pool-trespass"]
        assert all(policy.rules[rule.id] == rule.default for rule in others)

    def test_custom_workloads_replace_the_well_known_workloads(self) -> None:
        given = [{"group": "train.example", "resources": ["runs", "sweeps"]}]
        policy = parse_policy(document(customWorkloads=given))
        assert policy.custom_workloads == (CustomWorkloads("train.example", ("runs", "sweeps")),)
        assert not parse_policy(document(customWorkloads=[])).custom_workloads

    def test_unquoted_off_which_yaml_parses_as_false_is_accepted(self) -> None:
        (rules,) = load_all("pool-trespass: off")
        assert rules == {"pool-trespass": False}
        assert parse_policy(document(rules=rules)).rules["pool-trespass"] == "off"

    def test_each_field_of_hardening_is_that_of_the_last_place_that_sets_it(self) -> None:
        pool = {"hardening": {"fsGroup": 7, "runAsGroup": 8, "version": "v1.34"}}
        overrides = [
            {"namespaces": ["*"], "hardening": {"home": "20Gi"}},
            {
                "namespaces": ["a", "b"],
                "hardening": {"version": "v1.36", "fsGroup": 9, "runAsUser": "none"},
            },
            {"namespaces": ["b"], "hardening": {"level": "restricted", "runAsUser": 1000}},
            {"namespaces": ["b"], "hardening": {"warn": "off", "version": "latest"}},
        ]
        general = {"level": "baseline", "warn": "restricted", "runAsUser": 500}
        given = document(hardening=general, overrides=overrides)
        given["spec"]["pools"][0] |= pool
        policy = parse_policy(given)
        found = {
            name: policy.hardening_of(policy.actions_in(name), policy.pools[:1])
            for name in ("a", "b", "c")
        }
        assert found == {
            "a": EffectiveHardening("baseline", "restricted", "v1.36", None, 8, 9, None, "20Gi"),
            "b": EffectiveHardening("restricted", "off", "latest", 1000, 8, 9, None, "20Gi"),
            "c": EffectiveHardening("baseline", "restricted", "v1.34", 500, 8, 7, None, "20Gi"),
        }
        assert policy.hardening_of(policy.actions_in("c"), ()).fs_group is None

    def test_a_default_action_limits_the_rules_that_are_not_named(self) -> None:
        overrides = [
            {
                "namespaces": ["a", "b"],
                "defaultAction": "audit",
                "rules": {"device-leak": "enforce"},
            },
            {"namespaces": ["b"], "rules": {"pool-trespass": "enforce"}},
            {"namespaces": ["c"], "defaultAction": "enforce"},
        ]
        rules = {"pool-trespass": "enforce"}
        policy = parse_policy(document(defaultAction="warn", rules=rules, overrides=overrides))
        names = ("pool-trespass", "device-leak", "pool-toleration", "stuck-rollout")
        assert DEFAULT_ACTIONS["stuck-rollout"] == "warn"
        assert {
            namespace: [policy.actions_in(namespace)[rule] for rule in names]
            for namespace in ("a", "b", "c", "d")
        } == {
            "a": ["audit", "enforce", "audit", "audit"],
            "b": ["enforce", "enforce", "audit", "audit"],
            "c": ["enforce", "warn", "warn", "warn"],
            "d": ["enforce", "warn", "warn", "warn"],
        }
        for wrong in ("deny", 3):
            with pytest.raises(PolicyError, match=r"spec\.defaultAction: is .*, but must be"):
                parse_policy(document(defaultAction=wrong))

    def test_an_exception_covers_a_prefix_of_namespaces(self) -> None:
        entry = {"namespaces": ["team-*", "legacy"], "reason": "moving"}
        (compiled,) = parse_policy(document(exceptions=[entry])).exceptions
        covered = [
            namespace
            for namespace in ("team-a", "team", "legacy", "legacy-2")
            if compiled.covers("pool-trespass", namespace, "Pod", "a")
        ]
        assert covered == ["team-a", "legacy"]

    def test_metadata_and_status_of_a_live_object_do_not_change_the_policy(self) -> None:
        metadata = {"name": "gpus", "uid": "1", "generation": 3, "managedFields": [{"a": 1}]}
        live = document() | {"metadata": metadata, "status": {"conditions": [{"type": "x"}]}}
        assert settings(parse_policy(live)) == settings(parse_policy(document()))

    @pytest.mark.parametrize("written", ["2026-12-31", date(2026, 12, 31)])
    def test_an_expiry_date_may_be_a_string_or_a_yaml_date(self, written: Any) -> None:
        entry = {"namespaces": ["a"], "reason": "until summer", "expires": written}
        (compiled,) = parse_policy(document(exceptions=[entry])).exceptions
        assert compiled.expires == date(2026, 12, 31)
        assert not compiled.has_expired(date(2026, 12, 30))
        assert compiled.has_expired(date(2026, 12, 31))
        assert not compiled.has_expired(None)


NO_POLICIES: list[Any] = [
    (None, "the policy: must be a mapping with kind: FencePolicy, but is None"),
    (["x"], "the policy: must be a mapping with kind: FencePolicy, but is ['x']"),
    (document() | {"kind": "Policy"}, "kind: is 'Policy', but must be 'FencePolicy'"),
    (
        document() | {"apiVersion": "v1"},
        "apiVersion: is 'v1', but must be 'gpufence.dev/v1beta1'",
    ),
    (document() | {7: 1}, "[7]: keys should be strings (found 7)"),
    (document() | {"spec": None}, "spec: must be a mapping, but is None"),
    (document() | {"metadata": {}}, "metadata.name: this field is required"),
    (
        document() | {"pools": []},
        "pools: unknown field; accepted: apiVersion, kind, metadata, spec, status",
    ),
]
MISTAKES: list[JSON] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())


@pytest.mark.parametrize(("given", "expected"), NO_POLICIES)
def test_an_object_that_is_no_policy_is_reported(given: Any, expected: str) -> None:
    assert problems(given) == [expected]
    assert not SCHEMA.is_valid(given)


def test_fields_outside_of_spec_are_one_problem_that_says_where_they_belong() -> None:
    head = {"apiVersion": "gpufence.dev/v1beta1", "kind": "FencePolicy"}
    (problem,) = problems(head | {"mode": "warn", "pools": [POOL], "rules": {}})
    assert problem == (
        "mode: belongs under spec; write metadata: {name: gpufence} and spec: below kind, and "
        "indent mode, pools, rules by two spaces"
    )


def test_a_mistake_is_reported_with_path_and_remediation() -> None:
    def reported(mistake: JSON) -> None:
        given = document(pool(**mistake.get("pool", {})), **mistake.get("spec", {}))
        assert problems(given) == [f"spec.{mistake['problem']}"]
        assert schemas_accept(given) == [mistake.get("only-servers", False)] * 2

    each(MISTAKES, reported)


@pytest.mark.parametrize("name", ["cpu", "nvidia.com/", "*", "nvidia.com/*gpu", "kubernetes.io/x"])
@pytest.mark.parametrize("key", ["resources", "sharedResources"])
def test_a_resource_that_is_no_extended_resource_or_prefix_is_rejected(name: str, key: str) -> None:
    (problem,) = problems(document(pool(**{key: ["nvidia.com/gpu", name]})))
    assert problem == (
        f"spec.pools[0].{key}[1]: is not the name of an extended resource; use "
        "vendor.example/name or vendor.example/prefix-*"
    )


@pytest.mark.parametrize("name", ["nvidia.com/*", "nvidia.com/mig-*", "a/b", "example.com/A.b_c-d"])
def test_a_resource_may_be_a_name_or_a_prefix(name: str) -> None:
    assert parse_policy(document(pool(resources=[name]))).pools[0].resources == NameSet([name])


def test_all_unknown_rules_are_reported_with_the_accepted_rules() -> None:
    messages = problems(
        document(rules={"no-such": "warn", "device-leak": "warn", "nor-this": "off"})
    )
    ids = ", ".join(rule.id for rule in RULES)
    assert messages == [
        f"spec.rules[no-such]: unknown rule; accepted: {ids}",
        f"spec.rules[nor-this]: unknown rule; accepted: {ids}",
    ]


def test_all_problems_are_reported_at_once() -> None:
    messages = problems(
        {
            "kind": "FencePolicy",
            "spec": {"pools": [pool(name="A", taint=[])], "hardening": {"level": ""}},
        }
    )
    assert [line.partition(":")[0] for line in messages] == [
        "apiVersion",
        "metadata",
        "spec.pools[0].name",
        "spec.pools[0].taint",
        "spec.hardening.level",
    ]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (["nvidia.com/gpu"], ["nvidia.com/gpu"], "nvidia.com/gpu"),
        (["nvidia.com/gpu"], ["nvidia.com/*"], "nvidia.com/gpu"),
        (["nvidia.com/*"], ["nvidia.com/gpu"], "nvidia.com/*"),
        (["nvidia.com/mig-*"], ["nvidia.com/mig-1g*"], "nvidia.com/mig-*"),
        (["nvidia.com/mig-1g*"], ["nvidia.com/mig-*"], "nvidia.com/mig-1g*"),
    ],
)
def test_pools_with_the_same_labels_and_a_shared_resource_are_rejected(
    first: list[str], second: list[str], shared: str
) -> None:
    pools = pool(name="one", resources=first), pool(name="two", resources=second)
    (problem,) = problems(document(*pools))
    assert problem == (
        f"spec: has {shared!r} in two pools, 'one' and 'two', but every node of 'two' is "
        "also a node of 'one'; add a label to the nodeSelector of 'one' that tells them apart"
    )


def test_a_taint_of_a_pool_is_no_quarantine_taint() -> None:
    broken = {"key": "gpu", "value": "broken"}
    for own, other in (({"key": "gpu"}, broken), (broken, {"key": "gpu"})):
        [problem] = problems(document(pool(taints=[own]), quarantineTaints=[other]))
        assert problem.endswith(
            "in pool 'nvidia', whose Pods tolerate it, and in quarantineTaints; remove it from one "
            "of the two"
        )


def test_pools_that_one_label_with_any_value_selects_are_rejected() -> None:
    wide = pool(name="any", nodeSelector={}, matchExpressions=[PRESENT])
    (problem,) = problems(document(POOL, wide))
    assert problem == (
        "spec: has 'nvidia.com/gpu' in two pools, 'nvidia' and 'any', but every node of 'nvidia' "
        "is also a node of 'any'; add a label to the nodeSelector of 'any' that tells them apart"
    )


@pytest.mark.parametrize(
    ("first", "second", "wide"),
    [
        ({"gpu": "true"}, {"gpu": "true", "model": "h100"}, "one"),
        ({"gpu": "true", "model": "h100"}, {"gpu": "true"}, "two"),
    ],
)
def test_pools_with_nested_labels_and_the_same_resource_are_rejected(
    first: dict[str, str], second: dict[str, str], wide: str
) -> None:
    pools = pool(name="one", nodeSelector=first), pool(name="two", nodeSelector=second)
    (problem,) = problems(document(*pools))
    assert problem.endswith(f"add a label to the nodeSelector of '{wide}' that tells them apart")


def test_pools_with_the_same_labels_and_a_shared_class_are_rejected() -> None:
    amd = pool(name="amd", resources=["amd.com/gpu"], deviceClasses=["gpu.example.com"])
    (problem,) = problems(document(pool(deviceClasses=["gpu.example.com"]), amd))
    assert problem.startswith("spec: has 'gpu.example.com' in two pools, 'nvidia' and 'amd'")


def test_two_pools_with_the_same_name_are_rejected() -> None:
    other = pool(resources=["amd.com/gpu"])
    assert problems(document(POOL, other)) == [
        "spec: has two pools named 'nvidia'; give each its own name"
    ]


def test_no_runtime_class_is_exempt_and_an_empty_list_of_them_is_accepted() -> None:
    """The default policy of gpufence 0.2 has it."""
    parse_policy(document(POOL, exemptions={"runtimeClasses": []}))
    (problem,) = problems(document(POOL, exemptions={"runtimeClasses": ["kata"]}))
    assert problem == (
        "spec.exemptions.runtimeClasses: no longer exists, because the author of any Pod could set "
        "such a class; exempt namespaces"
    )


def test_a_problem_truncates_a_long_input_value() -> None:
    for long in (document() | {"kind": "x" * 9999}, document(pools="y" * 9999), "z" * 9999):
        (problem,) = problems(long)
        assert len(problem) < 200


PLACES: dict[str, Callable[[str], JSON]] = {
    "a resource": lambda text: document(pool(resources=[text])),
    "a shared resource": lambda text: document(
        pool(resources=["a.b/*", text], sharedResources=[text])
    ),
    "a device class": lambda text: document(pool(deviceClasses=[text])),
    "the key of a label": lambda text: document(pool(nodeSelector={text: "true"})),
    "the value of a label": lambda text: document(pool(nodeSelector={"a": text})),
    "the key of a taint": lambda text: document(pool(taints=[{"key": text}])),
    "the value of a taint": lambda text: document(pool(taints=[{"key": "a", "value": text}])),
    "an allowed namespace": lambda text: allowing(names=[text]),
    "the label of a namespace": lambda text: allowing(matchLabels={text: "true"}),
    "a requirement on a namespace": lambda text: allowing(
        matchExpressions=[{"key": text, "operator": "Exists"}]
    ),
    "a runtime class": lambda text: document(pool(runtimeClass=text)),
    "an exempt namespace": lambda text: document(exemptions={"namespaces": [text]}),
    "the namespace of an override": lambda text: document(
        overrides=[{"namespaces": [text], "rules": {"device-leak": "warn"}}]
    ),
    "the namespace of an exception": lambda text: document(
        exceptions=[{"namespaces": [text], "reason": "why"}]
    ),
    "the group of a custom resource": lambda text: document(
        customWorkloads=[{"group": text, "resources": ["jobs"]}]
    ),
}
"""Policies with a text for a name, by its place."""

BAD = {f"{place} with a space": named("example.com/a b") for place, named in PLACES.items()} | {
    "an unknown rule in an override": document(
        overrides=[{"namespaces": ["a"], "rules": {"pool-trespas": "warn"}}]
    ),
    "an unknown rule in an exception": document(
        exceptions=[{"namespaces": ["a"], "reason": "why", "rules": ["pool-trespas"]}]
    ),
    "an unknown rule": document(rules={"pool-trespas": "warn"}),
    "an override without rules": document(overrides=[{"namespaces": ["a"], "rules": {}}]),
    "a pool that no namespace may request": allowing(names=[], matchLabels={}, unknown="deny"),
    "NotIn without values": allowing(
        matchExpressions=[{"key": "team", "operator": "NotIn", "values": []}]
    ),
    "Exists with values": allowing(
        matchExpressions=[{"key": "team", "operator": "Exists", "values": ["a"]}]
    ),
}


def test_the_schemas_are_valid() -> None:
    for schema in (SCHEMA, VALUES):
        schema.check_schema(schema.schema)


@pytest.mark.parametrize("given", BAD.values(), ids=BAD.keys())
def test_the_schemas_reject_documents_that_the_server_rejects(given: JSON) -> None:
    assert problems(given)
    assert not any(schemas_accept(given))


@given(
    st.sampled_from([*PLACES.values()]),
    st.one_of(
        st.text("aZ0-._/*", max_size=8),
        st.from_regex(
            r"[a-z0-9]{1,3}(\.[a-z0-9]{1,3}){0,2}(/[A-Za-z0-9._-]{0,4}\*?)?", fullmatch=True
        ),
    ),
)
def test_law_the_schema_accepts_every_name_that_the_server_accepts(
    named: Callable[[str], JSON], text: str
) -> None:
    written = named(text)
    try:
        parse_policy(written)
    except PolicyError:
        return
    assert all(schemas_accept(written))


def test_the_schema_accepts_every_rule_in_rules_overrides_and_exceptions() -> None:
    rules = {rule.id: "warn" for rule in RULES}
    whole = document(
        rules=rules,
        overrides=[{"namespaces": ["a"], "rules": rules}],
        exceptions=[{"namespaces": ["a"], "reason": "why", "rules": list(rules)}],
    )
    parse_policy(whole)
    assert all(schemas_accept(whole))


RELEASED = sorted((PROJECT / "tests" / "released").glob("*.yaml"))


def test_each_released_form_of_a_policy_loads_with_each_of_its_fields() -> None:
    """A released form has a file of its own: no later version may fail to read it."""

    def compare(written: Any, loaded: Any, path: str) -> None:
        if isinstance(written, dict):
            for key, part in written.items():
                compare(part, loaded[key], f"{path}.{key}")
        elif isinstance(written, list) and any(isinstance(part, dict) for part in written):
            for part, other in zip(written, loaded, strict=True):
                compare(part, other, f"{path}[]")
        elif isinstance(written, list):
            assert {*written} <= {*map(str, loaded)}, path
        else:
            assert str(loaded) in {str(written), "None"}, path

    for path in RELEASED:
        released = yaml.safe_load(path.read_text())
        compare(released["spec"], normal_form(parse_policy(released)), path.stem)


def test_each_field_is_in_a_form_that_is_kept() -> None:
    schema = json_schema(FencePolicy)

    def fields_of(node: JSON) -> set[str]:
        """Return the paths of the fields below a part of the schema."""
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        found = {path for part in node.get("anyOf", ()) for path in fields_of(part)}
        for key, part in node.get("properties", {}).items():
            found |= {f"{key}/{path}" for path in fields_of(part)} or {key}
        return found | (fields_of(node["items"]) if isinstance(node.get("items"), dict) else set())

    def paths(value: object) -> set[str]:
        if isinstance(value, dict):
            return {
                f"{key}/{path}" if path else str(key)
                for key, part in value.items()
                for path in paths(part) or {""}
            }
        return set().union(*map(paths, value)) if isinstance(value, list) else set()

    kept = [f"{path}/" for path in paths([yaml.safe_load(file.read_text()) for file in RELEASED])]
    # Between releases, rules come without a change of the file.
    ends = ("/rules/",) if ".dev" in version("gpufence") else ()
    leaves = [path for path in fields_of(schema) - {"status"} if not any(e in path for e in ends)]
    assert not [leaf for leaf in leaves if not any(path.startswith(f"{leaf}/") for path in kept)]

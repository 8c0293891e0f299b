"""The policy's JSON schema, which editors and helm use, rejects what the server rejects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cases.loading import policy_document
from paths import CHART
from policies.document import FencePolicy, PolicyError, json_schema, parse_policy
from policies.registry import RULES

JSON = dict[str, Any]

CHART = json.loads((CHART / "values.schema.json").read_text())
# Each as a validator, because jsonschema.validate also validates the schema, each time.
SCHEMAS = {
    "gpufence policy schema": Draft202012Validator(json_schema(FencePolicy)),
    "the chart's values": Draft202012Validator(
        {"$ref": "#/$defs/FencePolicy", "$defs": CHART["$defs"]}
    ),
}

POOL: JSON = {
    "name": "nvidia",
    "resources": ["nvidia.com/gpu"],
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
}


def document(*pools: JSON, **fields: Any) -> JSON:
    return {**policy_document("default"), "pools": list(pools or [POOL]), **fields}


def exception(**fields: Any) -> JSON:
    return document(exceptions=[{"namespaces": ["a"], "reason": "why", **fields}])


BAD: dict[str, JSON] = {
    "a rule with a slip": document(rules={"pool-trespas": "warn"}),
    "a rule in an override with a slip": document(
        overrides=[{"namespaces": ["a"], "rules": {"pool-trespas": "warn"}}]
    ),
    "a rule in an exception with a slip": exception(rules=["pool-trespas"]),
    "an action with a slip": document(rules={"pool-trespass": "warning"}),
    "an override without rules": document(overrides=[{"namespaces": ["a"], "rules": {}}]),
    "an exception without a reason": document(exceptions=[{"namespaces": ["a"]}]),
    "another kind": document(kind="Policy"),
    "an unknown key": document(rule={}),
    "an unknown key of a pool": document({**POOL, "taint": []}),
    "no pool": document(pools=[]),
    "a pool without labels": document({**POOL, "nodeSelector": {}}),
    "a pool with a capital name": document({**POOL, "name": "NVIDIA"}),
    "a taint without a key": document({**POOL, "taints": [{"value": "x"}]}),
    "a taint with an effect of its own": document(
        {**POOL, "taints": [{"key": "a", "effect": "x"}]}
    ),
    "a request of nothing": document({**POOL, "largestRequest": 0}),
    "a negative price": document({**POOL, "pricePerDeviceHour": -0.5}),
    "a price in quotes": document({**POOL, "pricePerDeviceHour": "2.5"}),
    "root": document(hardening={"runAsUser": 0}),
    "another level": document(hardening={"level": "privileged"}),
    "a pool that offers nothing": document({**POOL, "resources": [], "deviceClasses": []}),
    "a pool that nobody may request": document({**POOL, "allowedNamespaces": {}}),
    "a pool that nobody may request, at length": document(
        {**POOL, "allowedNamespaces": {"names": [], "matchLabels": {}, "unknown": "deny"}}
    ),
    **{
        f"a requirement on a tenant's label with {operator} and values {values}": document(
            {
                **POOL,
                "allowedNamespaces": {
                    "matchExpressions": [{"key": "team", "operator": operator, **values}]
                },
            }
        )
        for operator, values in (
            ("In", {}),
            ("NotIn", {"values": []}),
            ("Exists", {"values": ["a"]}),
        )
    },
    "annotations that the default scheduler reads": document(
        {
            **POOL,
            "annotationRequests": [{"annotations": ["gpus"], "schedulerName": "default-scheduler"}],
        }
    ),
    "a group of the API itself": document(
        customWorkloads=[{"group": "batch", "resources": ["jobs"]}]
    ),
}


PLACES: dict[str, Callable[[str], JSON]] = {
    "a resource": lambda text: document({**POOL, "resources": [text]}),
    "a shared resource": lambda text: document(
        {**POOL, "resources": ["a.b/*", text], "sharedResources": [text]}
    ),
    "a device class": lambda text: document({**POOL, "deviceClasses": [text]}),
    "a label's key": lambda text: document({**POOL, "nodeSelector": {text: "true"}}),
    "a label's value": lambda text: document({**POOL, "nodeSelector": {"a": text}}),
    "a taint's key": lambda text: document({**POOL, "taints": [{"key": text}]}),
    "a taint's value": lambda text: document({**POOL, "taints": [{"key": "a", "value": text}]}),
    "a tenant": lambda text: document({**POOL, "allowedNamespaces": {"names": [text]}}),
    "a tenant's label": lambda text: document(
        {**POOL, "allowedNamespaces": {"matchLabels": {text: "true"}}}
    ),
    "a runtime class": lambda text: document({**POOL, "runtimeClass": text}),
    "a requirement on a tenant's label": lambda text: document(
        {**POOL, "allowedNamespaces": {"matchExpressions": [{"key": text, "operator": "Exists"}]}}
    ),
    "the name of the document": lambda text: document(metadata={"name": text}),
    "an exempt namespace": lambda text: document(exemptions={"namespaces": [text]}),
    "an override's namespace": lambda text: document(
        overrides=[{"namespaces": [text], "rules": {"device-leak": "warn"}}]
    ),
    "an exception's namespace": lambda text: exception(namespaces=[text]),
    "a custom resource's group": lambda text: document(
        customWorkloads=[{"group": text, "resources": ["jobs"]}]
    ),
}
"""Policies with a text for a name, by its place."""

BAD |= {f"{place} with a space": named("example.com/a b") for place, named in PLACES.items()}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_the_schema_is_valid(schema: Draft202012Validator) -> None:
    schema.check_schema(schema.schema)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
@pytest.mark.parametrize("given", BAD.values(), ids=BAD.keys())
def test_the_schema_rejects_documents_that_the_server_rejects(
    given: JSON, schema: Draft202012Validator
) -> None:
    with pytest.raises(PolicyError):
        parse_policy(given)
    assert not schema.is_valid(given)


@hypothesis.given(
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
    for schema in SCHEMAS.values():
        assert schema.is_valid(written)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_the_schema_accepts_every_rule_in_rules_overrides_and_exceptions(
    schema: Draft202012Validator,
) -> None:
    rules = {rule.id: "warn" for rule in RULES}
    given = document(
        rules=rules,
        overrides=[{"namespaces": ["a"], "rules": rules}],
        exceptions=[{"namespaces": ["a"], "reason": "why", "rules": list(rules)}],
    )
    parse_policy(given)
    schema.validate(given)

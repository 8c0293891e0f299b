"""The policy's JSON schema, which editors and helm go by, refuses what the server refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cases.loading import policy_document
from policies.policy import FencePolicy, PolicyError, parse_policy
from policies.registry import RULES

JSON = dict[str, Any]

CHART = json.loads(
    (Path(__file__).parents[2] / "deploy/helm/gpufence/values.schema.json").read_text()
)
SCHEMAS = {
    "gpufence policy schema": FencePolicy.model_json_schema(by_alias=True),
    "the chart's values": {"$ref": "#/$defs/FencePolicy", "$defs": CHART["$defs"]},
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
    "root": document(hardening={"runAsUser": 0}),
    "another level": document(hardening={"level": "privileged"}),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
@pytest.mark.parametrize("given", BAD.values(), ids=BAD.keys())
def test_what_the_server_refuses_the_schema_refuses(given: JSON, schema: JSON) -> None:
    with pytest.raises(PolicyError):
        parse_policy(given)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(given, schema)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_every_rule_may_be_named_wherever_rules_are(schema: JSON) -> None:
    rules = {rule.id: "warn" for rule in RULES}
    given = document(
        rules=rules,
        overrides=[{"namespaces": ["a"], "rules": rules}],
        exceptions=[{"namespaces": ["a"], "reason": "why", "rules": list(rules)}],
    )
    parse_policy(given)
    jsonschema.validate(given, schema)

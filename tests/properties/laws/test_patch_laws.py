"""The patch that an API server gets makes of the original what the engine decided."""

from __future__ import annotations

import json

import jsonpatch
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.copying import clone
from policies.policy import Policy
from strategies import JSON
from webhook.admission.patch import diff

pytestmark = pytest.mark.timeout(3600)

objects = st.one_of(strategies.pods(), strategies.gpu_pods(), strategies.workloads())
policies = st.sampled_from(list(strategies.policies().values()))


@law
@given(objects, policies, strategies.facts())
def test_the_patch_applied_to_the_original_is_the_mutated_object(
    obj: JSON, policy: Policy, facts: Facts
) -> None:
    # Parsed JSON shares nothing; examples may share what they are made of.
    obj = clone(obj)
    mutated = decide(obj, policy, facts=facts).mutated
    operations = diff(obj, mutated)
    event(f"operations: {min(len(operations), 5)}")
    assert bool(operations) is (mutated is not obj)
    patched = jsonpatch.apply_patch(obj, operations)
    assert json.dumps(patched, sort_keys=True) == json.dumps(mutated, sort_keys=True)
    assert {operation["op"] for operation in operations} <= {"add", "replace"}

"""The short ways of the engine say the same as the long ones."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

import strategies
from laws.profile import law
from policies import reach
from policies.engine import decide, validate
from policies.facts import Facts
from policies.kubernetes.editor import clone
from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy
from policies.rules import check_pool_trespass
from strategies import JSON, as_node

pytestmark = pytest.mark.timeout(3600)

policies = st.sampled_from(list(strategies.policies().values()))


@law
@given(strategies.pods(), policies, strategies.facts(), strategies.node_sets())
def test_pools_that_the_placement_of_a_pod_does_not_name_add_no_finding(
    pod: JSON, policy: Policy, facts: Facts, nodes: list[JSON]
) -> None:
    facts = replace(facts, nodes=NodeIndex(map(as_node, nodes)) if nodes else None)
    found = validate(pod, policy, facts=facts).findings
    with patch.object(reach, "_pools_by_key", lambda *_: policy.pools):
        assert validate(pod, policy, facts=facts).findings == found
    event(f"trespasses: {any(f.rule == check_pool_trespass.ID for f in found)}")


@law
@given(strategies.pods(), policies, strategies.facts())
def test_mutations_do_not_modify_the_original(pod: JSON, policy: Policy, facts: Facts) -> None:
    before = clone(pod)
    mutated = decide(pod, policy, facts=facts).mutated
    event(f"changed: {mutated is not pod}")
    assert pod == before

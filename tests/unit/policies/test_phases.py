"""The mutating webhook adds what ``decide`` adds, whatever the actions of the checks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policies.engine import decide, mutate
from policies.facts import Request
from policies.finding import ACTIONS, Action
from policies.registry import RULES
from reviewing import default_policy, gpu_pod

DEFAULT = default_policy()
RULE_ACTIONS = st.fixed_dictionaries({rule.id: st.sampled_from(ACTIONS) for rule in RULES})


@given(RULE_ACTIONS, st.dictionaries(st.just("ml"), RULE_ACTIONS))
def test_mutate_returns_the_operations_of_decide(
    actions: dict[str, Action], overrides: dict[str, dict[str, Action]]
) -> None:
    policy = replace(DEFAULT, actions=actions, overrides=overrides)
    pod = gpu_pod()
    pod["spec"]["volumes"] = [{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}]
    for namespace in ("ml", "shop"):
        request = Request(namespace=namespace)
        assert mutate(pod, policy, request) == decide(pod, policy, request).operations

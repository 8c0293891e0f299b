"""The mutating webhook adds what ``decide`` adds, whatever the actions of the checks."""

from __future__ import annotations

from dataclasses import replace

import yaml
from hypothesis import given
from hypothesis import strategies as st

from paths import CASES
from policies.engine import decide, mutate
from policies.facts import Request
from policies.finding import ACTIONS, Action
from policies.kubernetes.decoding import MalformedObjectError
from policies.policy import Override
from policies.registry import MUTATIONS, RULES
from reviewing import default_policy, gpu_pod

DEFAULT = default_policy()
RULE_ACTIONS = st.fixed_dictionaries({rule.id: st.sampled_from(ACTIONS) for rule in RULES})


@given(RULE_ACTIONS, st.lists(RULE_ACTIONS, max_size=1))
def test_mutate_returns_the_operations_of_decide(
    rules: dict[str, Action], overridden: list[dict[str, Action]]
) -> None:
    policy = replace(
        DEFAULT, rules=rules, overrides=tuple(Override(("ml",), each) for each in overridden)
    )
    pod = gpu_pod()
    pod["spec"]["volumes"] = [{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}]
    for namespace in ("ml", "shop"):
        request = Request(namespace=namespace)
        assert mutate(pod, policy, request) == decide(pod, policy, request).operations


def test_the_object_after_a_mutation_is_that_of_a_policy_without_the_later_mutations() -> None:
    """Later mutations must not change what earlier ones add: ``explain`` shows them one by one."""
    changed = 0
    for path in CASES.glob("*/*/*.yaml"):
        for obj in filter(None, yaml.safe_load_all(path.read_text())):
            try:
                decision = decide(obj, DEFAULT)
            except MalformedObjectError:
                continue
            changed += bool(decision.operations)
            for count in range(len(MUTATIONS) + 1):
                done = [mutation.id for mutation in MUTATIONS[:count]]
                off: dict[str, Action] = {rule.id: "off" for rule in RULES}
                on = {rule: DEFAULT.rules[rule] for rule in done}
                shortened = replace(DEFAULT, rules=off | on, overrides=())
                assert decision.mutated_by(done) == decide(obj, shortened).mutated, path
    assert changed > 50

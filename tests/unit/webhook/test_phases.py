"""What an API server asks twice about is changed once and judged once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policies.engine import decide
from policies.facts import Facts
from policies.finding import ACTIONS, Action
from policies.registry import RULES
from reviewing import default_policy, gpu_pod
from webhook.admission.phases import setters_only

DEFAULT = default_policy()
RULE_ACTIONS = st.fixed_dictionaries({rule.id: st.sampled_from(ACTIONS) for rule in RULES})


@given(RULE_ACTIONS, st.dictionaries(st.just("ml"), RULE_ACTIONS))
def test_the_first_time_changes_what_the_policy_changes_and_finds_nothing(
    actions: dict[str, Action], overrides: dict[str, dict[str, Action]]
) -> None:
    policy = replace(DEFAULT, actions=actions, overrides=overrides)
    pod = gpu_pod()
    pod["spec"]["volumes"] = [{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}]
    for namespace in ("ml", "shop"):
        facts = Facts(namespace=namespace)
        first = decide(pod, setters_only(policy), facts)
        assert first.mutated == decide(pod, policy, facts).mutated
        assert first.findings == ()

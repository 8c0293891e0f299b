"""The decision by example, and its two phases, which agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases.loading import load_all
from deciding import GPU, TOLERATION, deployment, pod, policy, update
from paths import CASES
from policies.engine import decide, mutate, validate
from policies.facts import Request
from policies.finding import ACTIONS, Action, Mode
from policies.kubernetes.objects import MalformedObjectError
from policies.policy import Override
from policies.registry import MUTATIONS, RULES
from reviewing import default_policy, gpu_pod
from strategies import JSON


def deployment_of_pod(*containers: JSON, **spec: Any) -> JSON:
    return deployment(pod(*containers, **spec))


class TestUpdates:
    def test_a_pod_update_mutates_only_new_debug_containers(self) -> None:
        assert decide(pod(GPU), policy(), update(pod(GPU))).mutated == pod(GPU)
        debugged = pod(GPU, ephemeralContainers=[{"name": "debug", "image": "i"}])
        request = update(pod(GPU), subresource="ephemeralcontainers")
        mutated = decide(debugged, policy(), request).mutated
        assert mutated["spec"].pop("ephemeralContainers") != debugged["spec"]["ephemeralContainers"]
        assert mutated == pod(GPU)

    @pytest.mark.parametrize("deleted", ["new", "old", "neither"])
    @pytest.mark.parametrize("of", [pod, deployment_of_pod], ids=["a Pod", "a Deployment"])
    def test_an_update_of_an_object_that_is_being_deleted_is_allowed(
        self, of: Callable[..., JSON], deleted: str
    ) -> None:
        new, old = of(GPU, hostPID=True), of()
        if deleted != "neither":
            obj = {"new": new, "old": old}[deleted]
            obj["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
        decision = validate(new, policy(), update(old))
        expected = ("", True) if deleted == "neither" else ("it is being deleted", False)
        assert (decision.exemption, bool(decision.findings)) == expected

    def test_an_object_that_is_being_deleted_is_not_mutated(self) -> None:
        new = deployment_of_pod(GPU)
        assert mutate(new, policy(), update(deployment_of_pod()))
        new["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
        assert mutate(new, policy(), update(deployment_of_pod())) == ()

    def test_a_workload_update_mutates_the_pod_template(self) -> None:
        assert (
            decide(deployment(pod(GPU)), policy(), update(deployment(pod()))).verdict == "mutated"
        )


class TestVerdicts:
    @pytest.mark.parametrize(
        ("obj", "verdict", "pools"),
        [
            (pod(), "allowed", ()),
            (pod(GPU), "mutated", ("nvidia",)),
            (pod(tolerations=[TOLERATION]), "denied", ()),
            (deployment(pod(GPU)), "mutated", ("nvidia",)),
            ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, "skipped", ()),
            ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}, "skipped", ()),
        ],
    )
    def test_an_object_has_the_expected_verdict_and_pools(
        self, obj: JSON, verdict: str, pools: tuple[str, ...]
    ) -> None:
        decision = decide(obj, policy())
        assert (decision.verdict, decision.pools) == (verdict, pools)

    def test_an_object_with_a_mutation_and_a_finding_is_denied(self) -> None:
        decision = decide(pod(GPU, hostPID=True), policy())
        assert decision.verdict == "denied"
        assert decision.mutated is not decision.original

    def test_every_template_of_an_object_is_checked(self) -> None:
        replicas = {
            name: {"template": {"spec": template["spec"]}}
            for name, template in {"Master": pod(), "Worker": pod(GPU, hostPID=True)}.items()
        }
        job = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "j"},
            "spec": {"pytorchReplicaSpecs": replicas},
        }
        (finding,) = decide(job, policy()).findings
        assert finding.path == "spec.pytorchReplicaSpecs.Worker.template.spec.hostPID"


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
    off: dict[str, Action] = {rule.id: "off" for rule in RULES}
    shortened = []
    for count in range(len(MUTATIONS) + 1):
        done = [mutation.id for mutation in MUTATIONS[:count]]
        on = {rule: DEFAULT.rules[rule] for rule in done}
        shortened.append((done, replace(DEFAULT, rules=off | on, overrides=())))
    changed = 0
    for path in CASES.glob("*/*/*.yaml"):
        for obj in filter(None, load_all(path.read_text())):
            try:
                decision = decide(obj, DEFAULT)
            except MalformedObjectError:
                continue
            if decision.operations:
                changed += 1
                for done, policy in shortened:
                    assert decision.mutated_by(done) == decide(obj, policy).mutated, path
    assert changed > 50


@pytest.mark.parametrize(("mode", "would"), [("warn", None), ("audit", "warn")])
def test_a_mode_does_not_make_a_warning_a_denial_that_it_prevents(mode: Mode, would: str) -> None:
    only_warns = pod({}, initContainers=[{"name": "warm-up", "image": "i"} | GPU])
    by_rule = {f.rule: f for f in validate(only_warns, policy(mode=mode)).findings}
    assert (by_rule["missing-device"].action, by_rule["missing-device"].would) == (mode, would)

"""The decision by example, and its two phases, which agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases.loading import load_all
from deciding import GPU, TOLERATION, deployment, pod, policy, update
from paths import CASES
from policies.engine import NO_REQUEST, decide, mutate, validate
from policies.facts import Facts, Request
from policies.finding import ACTIONS, Action, Mode
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodObject
from policies.kubernetes.objects import MalformedObjectError
from policies.policy import Override
from policies.registry import MUTATIONS, RULES
from reviewing import default_policy, gpu_pod, with_value, without
from specs import default_spec
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


ENV = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
DEBUG = {"name": "debug", "image": "cuda"}
CLAIM_SPEC: JSON = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}
USES_CLAIM: JSON = {"resources": {"claims": [{"name": "gpu"}]}}
CLAIMED = Facts(claims={("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))})


class TestMutationsThatAreLost:
    """Another webhook, or the author of a claim, acts between the two reviews."""

    @pytest.mark.parametrize(
        ("path", "rule"),
        [
            ("spec.tolerations", "pool-toleration"),
            ("spec.affinity", "pool-node-affinity"),
            ("spec.containers.1.env", "void-visible-devices"),
        ],
    )
    def test_a_created_gpu_pod_without_what_gpufence_added_is_denied(
        self, path: str, rule: str
    ) -> None:
        mutated = decide(pod(GPU, {}), policy()).mutated
        assert validate(mutated, policy()).allowed
        [finding] = validate(without(mutated, path), policy()).findings
        assert (finding.rule, finding.action) == (rule, "enforce")
        assert "another mutating webhook changed the Pod after gpufence" in finding.message

    def test_a_variable_that_comes_back_after_its_removal_is_denied(self) -> None:
        mutated = decide(pod(GPU), policy()).mutated
        shown = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        findings = validate(with_value(mutated, "spec.containers.0.env", shown), policy()).findings
        assert [finding.rule for finding in findings] == ["assigned-devices"]
        assert "removes spec.containers[0].env[0], and the Pod has it" in findings[0].message

    def test_a_pod_whose_claim_became_a_gpu_between_the_reviews_is_denied(self) -> None:
        hardened = decide(pod(USES_CLAIM, {}, **CLAIM_SPEC), policy(), NO_REQUEST, CLAIMED).mutated
        hardened["spec"].pop("affinity")
        del hardened["spec"]["containers"][1]["env"]
        findings = validate(hardened, policy(), NO_REQUEST, CLAIMED).findings
        assert {each.rule for each in findings} == {"pool-node-affinity", "void-visible-devices"}
        assert all("its resource claims changed" in each.detail for each in findings)
        assert all(each.remediation.startswith("Send the request again") for each in findings)

    def test_what_depends_on_the_cluster_or_has_a_check_of_its_own_denies_nothing(self) -> None:
        """Replicas learn of a RuntimeClass one after the other, and runAsUser is a convenience."""
        [pool] = default_spec()["pools"]
        written = policy(pools=[pool | {"runtimeClass": "nvidia"}])
        mutated = decide(pod(GPU), written).mutated
        for field in ("runAsUser", "runAsGroup", "fsGroup"):
            mutated["spec"]["securityContext"].pop(field, None)
        assert validate(
            mutated, written, NO_REQUEST, Facts(runtime_classes={"nvidia": "nvidia"})
        ).allowed

    @pytest.mark.parametrize("rules", [{}, {"void-visible-devices": "warn"}])
    @pytest.mark.parametrize("mode", ["enforce", "audit"])
    def test_a_mutation_denies_only_where_the_policy_enforces_it(
        self, mode: Mode, rules: dict[str, Action]
    ) -> None:
        written = policy(mode=mode, rules=default_spec()["rules"] | rules)
        mutated = decide(pod(GPU, {}), policy()).mutated
        decision = validate(without(mutated, "spec.containers.1.env"), written)
        assert decision.allowed == (mode == "audit" or bool(rules))

    def test_an_exception_for_the_mutation_admits_the_pod(self) -> None:
        entry = {
            "rules": ["void-visible-devices"],
            "namespaces": ["default"],
            "reason": "its sidecar is rendered again",
            "expires": "2099-01-01",
        }
        mutated = decide(pod(GPU, {}), policy()).mutated
        bare = without(mutated, "spec.containers.1.env")
        assert not validate(bare, policy()).allowed
        assert validate(bare, policy(exceptions=[entry])).allowed

    def test_an_update_of_a_pod_from_before_gpufence_is_allowed(self) -> None:
        old = pod(GPU, {})
        new = pod(GPU, {}, metadata={"labels": {"a": "b"}})
        assert not validate(new, policy(), update(old)).findings

    def test_a_mirror_pod_is_never_denied_for_it(self) -> None:
        mutated = decide(pod(GPU, {}), policy()).mutated
        bare = without(mutated, "spec.containers.1.env")
        bare["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        bare["spec"]["nodeName"] = "gpu-1"
        request = Request(username="system:node:gpu-1")
        assert not validate(bare, policy(), request).findings
        assert validate(bare, policy(), Request(username="alice")).findings


class TestEphemeralContainers:
    """The API server takes nothing but the ephemeral containers from the client's object."""

    @pytest.mark.parametrize(
        "sent",
        [
            pod(GPU, metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"}),
            pod({}),
            pod({"resources": {"limits": {"amd.com/gpu": 1}}}),
            pod(GPU, ephemeralContainers=[]),
        ],
        ids=["deleted", "no request", "another vendor", "as stored"],
    )
    @pytest.mark.parametrize("typed", [False, True])
    def test_the_stored_pod_decides_what_a_new_container_gets(
        self, sent: JSON, typed: bool
    ) -> None:
        stored = decide(pod(GPU), policy()).mutated
        debugged = with_value(sent, "spec.ephemeralContainers", [DEBUG])
        obj, old = (
            msgspec.convert(each, PodObject) if typed else each for each in (debugged, stored)
        )
        request = update({}, subresource="ephemeralcontainers")
        request = msgspec.structs.replace(request, old=old)
        added = [each for each in mutate(obj, policy(), request) if each.path.endswith("/env")]
        assert [(each.path, each.value) for each in added] == [
            ("/spec/ephemeralContainers/0/env", ENV["env"])
        ]

    def test_the_claims_of_the_stored_pod_count(self) -> None:
        stored = decide(pod(USES_CLAIM, **CLAIM_SPEC), policy(), NO_REQUEST, CLAIMED).mutated
        sent = pod(ephemeralContainers=[DEBUG])
        request = update(stored, subresource="ephemeralcontainers")
        paths = [each.path for each in mutate(sent, policy(), request, CLAIMED)]
        assert "/spec/ephemeralContainers/0/env" in paths

    def test_a_new_container_without_the_variable_is_denied(self) -> None:
        stored = decide(pod(GPU), policy()).mutated
        debugged = with_value(stored, "spec.ephemeralContainers", [DEBUG])
        request = update(stored, subresource="ephemeralcontainers")
        hardened = decide(debugged, policy(), request).mutated
        assert validate(hardened, policy(), request).allowed
        bare = without(hardened, "spec.ephemeralContainers.0.env")
        [finding] = validate(bare, policy(), request).findings
        assert finding.rule == "void-visible-devices"

    def test_a_container_that_was_there_before_gpufence_denies_no_other(self) -> None:
        stored = pod(GPU, ephemeralContainers=[{"name": "first", "image": "cuda"}])
        containers = [*stored["spec"]["ephemeralContainers"], DEBUG]
        debugged = with_value(stored, "spec.ephemeralContainers", containers)
        request = update(stored, subresource="ephemeralcontainers")
        hardened = decide(debugged, policy(), request).mutated
        assert validate(hardened, policy(), request).allowed


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
        DEFAULT,
        rules=rules,
        overrides=tuple(Override(namespaces=("ml",), rules=each) for each in overridden),
    )
    pod = gpu_pod()
    pod["spec"]["volumes"] = [{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}]
    for namespace in ("ml", "shop"):
        request = Request(namespace=namespace)
        assert mutate(pod, policy, request) == decide(pod, policy, request).operations


def test_a_mutation_changes_what_it_changes_without_the_later_mutations() -> None:
    """``explain`` shows them one by one."""
    off: dict[str, Action] = {rule.id: "off" for rule in RULES}
    shortened = []
    for count in range(len(MUTATIONS)):
        done = [mutation.id for mutation in MUTATIONS[:count]]
        on = {rule: DEFAULT.rules[rule] for rule in done}
        shortened.append((done, replace(DEFAULT, rules=off | on, overrides=())))
    changed = 0
    for path in CASES.glob("*/*/*.yaml"):
        for obj in filter(None, load_all(path.read_text())):
            with suppress(MalformedObjectError):
                decision = decide(obj, DEFAULT)
                changes = [*zip(decision.mutations, decision.operations, strict=True)]
                changed += bool(changes)
                for done, policy in shortened if changes else ():
                    earlier = tuple(change for rule, change in changes if rule in done)
                    assert mutate(obj, policy) == earlier, (path, done)
    assert changed > 50


@pytest.mark.parametrize(("mode", "would"), [("warn", None), ("audit", "warn")])
def test_a_mode_does_not_make_a_warning_a_denial_that_it_prevents(mode: Mode, would: str) -> None:
    only_warns = pod({}, initContainers=[{"name": "warm-up", "image": "i"} | GPU])
    by_rule = {f.rule: f for f in validate(only_warns, policy(mode=mode)).findings}
    assert (by_rule["missing-device"].action, by_rule["missing-device"].would) == (mode, would)

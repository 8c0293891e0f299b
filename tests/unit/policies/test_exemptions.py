"""What does not count: exempt objects, exceptions, findings of a stored object."""

from __future__ import annotations

from datetime import date
from typing import Any, get_args

import pytest

from deciding import GPU, TOLERATION, deployment, pod, policy, update
from policies.document import PolicyError
from policies.engine import decide, mutate, validate
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.pod_security import CONTROLS, name_of
from policies.policy import ALWAYS_EXCLUDED, ControlName
from strategies import JSON
from webhook.tools.exceptions import useless_exceptions


def two_containers(first: JSON, second: JSON, **spec: Any) -> JSON:
    """A Deployment of a container that requests a GPU, and of another one."""
    made = pod(GPU, **spec)
    [train] = made["spec"]["containers"]
    beside = {"name": "beside", "image": "i", **second}
    made["spec"]["containers"] = [{**train, **first}, beside]
    return deployment(made)


def adding_capabilities(*capabilities: str) -> JSON:
    return context(capabilities={"add": [*capabilities]})


def context(**fields: Any) -> JSON:
    return {"securityContext": fields}


def ports(*numbers: int) -> JSON:
    return {"ports": [{"containerPort": number, "hostPort": number} for number in numbers]}


def probe(**hosts: str) -> JSON:
    return {f"{kind}Probe": {"httpGet": {"host": host}} for kind, host in hosts.items()}


def host_path_volumes(*names: str) -> list[JSON]:
    return [{"name": name, "hostPath": {"path": "/data"}} for name in names]


SYSCTL = {"name": "kernel.msgmax", "value": "65536"}
ADDITIONAL_VIOLATIONS: dict[str, tuple[JSON, JSON]] = {
    "another host namespace": (
        two_containers({}, {}, hostPID=True),
        two_containers({}, {}, hostPID=True, hostIPC=True),
    ),
    "another port": (two_containers(ports(80), {}), two_containers(ports(80, 81), {})),
    "another host": (
        two_containers(probe(liveness="a"), {}),
        two_containers(probe(liveness="a", startup="b"), {}),
    ),
    "another volume": (
        two_containers({}, {}, volumes=host_path_volumes("a")),
        two_containers({}, {}, volumes=host_path_volumes("a", "b")),
    ),
    "another capability": (
        two_containers(adding_capabilities("CHOWN"), {}),
        two_containers(adding_capabilities("CHOWN", "KILL"), {}),
    ),
    "a capability that another container adds": (
        two_containers(adding_capabilities("CHOWN"), adding_capabilities("KILL")),
        two_containers(adding_capabilities("CHOWN", "KILL"), adding_capabilities("KILL")),
    ),
    "another option": (
        two_containers(context(seLinuxOptions={"user": "u"}), {}),
        two_containers(context(seLinuxOptions={"user": "u", "role": "r"}), {}),
    ),
    "another sysctl": (
        two_containers({}, {}, securityContext={"sysctls": [SYSCTL]}),
        two_containers(
            {}, {}, securityContext={"sysctls": [SYSCTL, {**SYSCTL, "name": "kernel.sem"}]}
        ),
    ),
    **{
        f"another container with {next(iter(fields))}": (
            two_containers(context(**fields), {}),
            two_containers(context(**fields), context(**fields)),
        )
        for fields in (
            {"privileged": True},
            {"allowPrivilegeEscalation": True},
            {"runAsNonRoot": False},
            {"runAsUser": 0},
            {"procMount": "Unmasked"},
            {"seccompProfile": {"type": "Unconfined"}},
            {"appArmorProfile": {"type": "Unconfined"}},
            {"windowsOptions": {"hostProcess": True}},
        )
    },
}
"""A fault of a control, and a further one of the same."""


class TestExemptions:
    @pytest.mark.parametrize(
        ("fields", "request_of", "expected"),
        [
            (
                {"namespaces": ["ops"]},
                Request(namespace="ops"),
                "the policy exempts namespace ops",
            ),
            (
                {"usernames": ["system:serviceaccount:ci:tester"]},
                Request(username="system:serviceaccount:ci:tester"),
                "the policy exempts user system:serviceaccount:ci:tester",
            ),
        ],
    )
    def test_an_exemption_is_reported_with_its_reason(
        self, fields: JSON, request_of: Request, expected: str
    ) -> None:
        obj = pod(tolerations=[TOLERATION])
        decision = decide(obj, policy(exemptions=fields), request_of)
        assert (decision.exemption, decision.verdict) == (expected, "allowed")

    def test_an_empty_username_is_not_exempt(self) -> None:
        assert decide(pod(tolerations=[TOLERATION]), policy(), Request(username="")).exemption == ""

    @pytest.mark.parametrize(
        "namespace",
        [
            "calico-system",
            "kube-flannel",
            "kube-system",
            "openshift-multus",
            "openshift-ovn-kubernetes",
            "tigera-operator",
        ],
    )
    def test_api_servers_send_no_request_from_a_namespace_that_starts_the_cluster(
        self, namespace: str
    ) -> None:
        request = Request(namespace)
        obj = pod(tolerations=[TOLERATION])
        own = policy(exemptions={})
        decision = decide(obj, own, request, excluded_namespaces=ALWAYS_EXCLUDED)
        assert decision.exemption.endswith(f"do not call gpufence for namespace {namespace}")


class TestUpdates:
    def test_a_create_with_a_deletion_timestamp_is_denied(self) -> None:
        obj = pod(tolerations=[TOLERATION], metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        assert decide(obj, policy()).verdict == "denied"

    def test_known_findings_are_matched_by_content_and_count(self) -> None:
        old = pod(tolerations=[TOLERATION])
        for tolerations, verdict in (
            ([TOLERATION], "allowed"),
            ([{"key": "other", "operator": "Exists"}, TOLERATION], "allowed"),
            ([TOLERATION, TOLERATION], "denied"),
        ):
            assert decide(pod(tolerations=tolerations), policy(), update(old)).verdict == verdict

    @pytest.mark.parametrize(
        ("before", "after", "verdict"),
        [
            ({"operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}, "denied"),
            ({}, {"operator": "Exists"}, "denied"),
            ({"value": "a"}, {"value": "b"}, "denied"),
            ({"value": "a"}, {"value": "a", "operator": "Equal"}, "allowed"),
            ({}, {"operator": "", "value": "", "effect": ""}, "allowed"),
        ],
    )
    def test_the_finding_about_a_toleration_is_new_if_it_covers_other_taints(
        self, before: JSON, after: JSON, verdict: str
    ) -> None:
        old, new = (pod(tolerations=[{"key": "nvidia.com/gpu", **f}]) for f in (before, after))
        assert decide(new, policy(), update(old)).verdict == verdict

    def test_a_finding_of_another_rule_is_new(self) -> None:
        old = deployment(pod(GPU, priorityClassName="system-node-critical"))
        new = deployment(pod(GPU, nodeSelector={"nvidia.com/gpu.present": "false"}))
        decision = decide(new, policy(), update(old))
        assert [finding.rule for finding in decision.findings] == ["unschedulable-gpu-pod"]

    @pytest.mark.parametrize("pair", ADDITIONAL_VIOLATIONS.values(), ids=ADDITIONAL_VIOLATIONS)
    def test_only_an_additional_violation_of_a_control_is_a_new_finding(
        self, pair: tuple[JSON, JSON]
    ) -> None:
        less, more = pair
        worse = decide(more, policy(), update(less))
        assert {finding.rule for finding in worse.findings} == {"unrestricted-gpu-pod"}
        for new, old in ((less, more), (more, more)):
            decision = decide(new, policy(), update(old))
            assert not decision.findings
            assert {finding.rule for finding in decision.known} == {"unrestricted-gpu-pod"}

    def test_a_finding_that_only_warned_does_not_excuse_one_that_denies(self) -> None:
        own = policy(hardening={"level": "baseline", "warn": "restricted"})
        old = two_containers(context(procMount="Unmasked"), {}, hostUsers=False)
        new = two_containers(context(procMount="Unmasked"), {})
        assert decide(old, own).allowed
        denied = [each for each in decide(new, own, update(old)).findings if each.action != "warn"]
        assert [each.reason for each in denied] == ["procMount"]

    @pytest.mark.parametrize("old", [{}, {"kind": "Pod"}, pod(tolerations="x"), {"metadata": True}])
    def test_findings_are_new_if_the_old_object_is_undecided(self, old: JSON) -> None:
        assert decide(pod(tolerations=[TOLERATION]), policy(), update(old)).verdict == "denied"


OFF = "covers nothing: its rules are off in its namespaces"


class TestExceptions:
    def test_a_decision_lists_excepted_findings_separately(self) -> None:
        entry = {"rules": ["pool-trespass"], "namespaces": ["default"], "reason": "until summer"}
        obj = pod(tolerations=[TOLERATION], nodeSelector={"nvidia.com/gpu.present": "true"})
        decision = decide(obj, policy(exceptions=[entry]))
        assert (decision.verdict, decision.findings) == ("allowed", ())
        assert [finding.rule for finding in decision.excepted] == ["pool-trespass"] * 2

    def test_a_finding_names_the_exception_that_expired_last(self) -> None:
        old = {"namespaces": ["default"], "reason": "until spring", "expires": "2026-03-01"}
        new = {"namespaces": ["default"], "reason": "until summer", "expires": "2026-06-01"}
        obj = pod(tolerations=[TOLERATION])
        verdicts = []
        for today in (date(2026, 2, 28), date(2026, 3, 1), date(2026, 6, 1), None):
            decision = decide(obj, policy(exceptions=[old, new]), Request(today=today))
            verdicts.append(decision.verdict)
            if decision.findings:
                assert decision.findings[0].detail.endswith(
                    "; its exception (until summer) expired on 2026-06-01"
                )
        assert verdicts == ["allowed", "allowed", "denied", "allowed"]

    @pytest.mark.parametrize(
        ("fields", "useless"),
        [
            ({"namespaces": ["legacy"]}, ""),
            ({"namespaces": ["kube-*"]}, ""),
            ({"namespaces": ["kube-system"]}, "covers nothing: its namespaces are exempt"),
            ({"namespaces": ["legacy", "kube-system"]}, ""),
            ({"namespaces": ["legacy"], "expires": "2026-06-01"}, "expired on 2026-06-01"),
            ({"namespaces": ["legacy"], "expires": "2026-06-02"}, ""),
            ({"namespaces": ["legacy"], "rules": ["missing-device"]}, OFF),
            ({"namespaces": ["legacy", "default"], "rules": ["missing-device"]}, ""),
            ({"namespaces": ["leg*"], "rules": ["missing-device"]}, ""),
            ({"namespaces": ["legacy"], "rules": ["missing-device", "device-leak"]}, ""),
        ],
    )
    def test_an_exception_is_useless_if_it_covers_no_finding(
        self, fields: JSON, useless: str
    ) -> None:
        own = policy(
            exceptions=[{**fields, "reason": "x"}],
            exemptions={"namespaces": ["kube-system"]},
            overrides=[{"namespaces": ["legacy"], "rules": {"missing-device": "off"}}],
        )
        assert dict(useless_exceptions(own, date(2026, 6, 1))) == ({0: useless} if useless else {})

    def test_an_exception_by_name_matches_generate_name(self) -> None:
        entry = {"namespaces": ["default"], "names": ["train-*"], "reason": "x"}
        obj = pod(tolerations=[TOLERATION])
        obj["metadata"] = {"generateName": "train-"}
        assert decide(obj, policy(exceptions=[entry])).verdict == "allowed"


CLAIMED = {"name": "gpu", "resourceClaimName": "late"}
KNOWN = Facts(claims={("default", "late"): Claim((frozenset({"gpu.nvidia.com"}),))})


def pod_with_claim(*tolerations: JSON, **spec: Any) -> JSON:
    """A Pod with a claim that waits for a node, and that is far from restricted."""
    user = {"resources": {"claims": [{"name": "gpu"}]}}
    return pod(user, hostPID=True, resourceClaims=[CLAIMED], tolerations=[*tolerations], **spec)


@pytest.mark.parametrize(
    "changed",
    [
        pod_with_claim(TOLERATION),
        pod_with_claim(nodeSelector={"nvidia.com/gpu.present": "true"}),
        pod_with_claim(schedulingGates=None),
    ],
    ids=["tolerations", "nodeSelector", "schedulingGates"],
)
def test_findings_from_a_claim_created_later_are_new(changed: JSON) -> None:
    old = pod_with_claim(schedulingGates=[{"name": "queue"}])
    assert decide(old, policy()).allowed, "nothing was known of the claim"
    decision = decide(changed, policy(), update(old), KNOWN)
    assert not decision.allowed
    assert decision.known == ()


def test_a_hardened_pod_that_is_older_than_its_claim_must_be_complete_where_it_moves() -> None:
    complete = pod_with_claim(TOLERATION)
    del complete["spec"]["hostPID"]
    complete = decide(complete, policy(), facts=KNOWN).mutated
    hardened = {**complete["spec"], "tolerations": []}
    del hardened["affinity"]
    [container] = complete["spec"]["containers"]
    hardened["containers"] = [{**container, "env": []}]
    old = {**complete, "spec": hardened}
    assert validate(old, policy()).allowed, "nothing was known of the claim"
    moved = {**complete, "spec": {**hardened, "tolerations": [TOLERATION]}}
    for earlier in (old, {**old, "spec": {"containers": 1}}):
        findings = validate(moved, policy(), update(earlier), KNOWN).findings
        assert [each.rule for each in findings] == ["pool-node-affinity", "void-visible-devices"]
        assert all(each.remediation.startswith("Delete the Pod, and create") for each in findings)
    assert validate(complete, policy(), update(old), KNOWN).allowed
    # An unknown claim may be for other devices.
    gated = {**old, "spec": {**hardened, "schedulingGates": [{"name": "queue"}]}}
    assert validate(old, policy(), update(gated)).allowed


def test_findings_without_a_placement_change_are_known() -> None:
    old = pod_with_claim()
    relabelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert decide(relabelled, policy(), update(old), KNOWN).allowed
    bound = pod_with_claim(nodeName="gpu-1")
    tolerating = pod_with_claim(TOLERATION, nodeName="gpu-1")
    assert decide(tolerating, policy(), update(bound), KNOWN).allowed, "it runs already"
    template, tolerating = deployment(old), deployment(pod_with_claim(TOLERATION))
    assert decide(tolerating, policy(), update(template), KNOWN).allowed, "its Pods are new"


@pytest.mark.parametrize("facts", [Facts(), KNOWN], ids=["unresolved", "resolved"])
def test_a_debug_container_of_a_pod_with_claims_is_mutated_and_checked(facts: Facts) -> None:
    running = pod_with_claim(nodeName="gpu-1")
    debug: JSON = {"name": "debug", "image": "i"}
    debugged = {**running, "spec": {**running["spec"], "ephemeralContainers": [debug]}}
    request = update(running, subresource="ephemeralcontainers")
    assert decide(debugged, policy(), request, facts).verdict == "mutated"
    debug["securityContext"] = {"privileged": True}
    decision = decide(debugged, policy(), request, facts)
    assert {finding.rule for finding in decision.findings} == {"unrestricted-gpu-pod"}
    # What the Pod had before is no new finding.
    relabeled = {**running, "metadata": {**running["metadata"], "labels": {"a": "b"}}}
    assert decide(relabeled, policy(), update(running), facts).allowed


PROFILE = "unrestricted-gpu-pod"
NCCL = "/home/kubernetes/bin/gib"


def mounting(*paths: str, **spec: Any) -> JSON:
    volumes = [{"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(paths)]
    return pod(GPU, volumes=volumes, **spec)


def test_an_exception_by_control_and_value_excepts_nothing_else() -> None:
    entry = {
        "rules": [PROFILE],
        "controls": ["hostPathVolumes"],
        "values": [NCCL, "/var/lib/tcpx/*"],
        "namespaces": ["*"],
        "reason": "NCCL",
    }
    for level in ("restricted", "baseline"):
        own = policy(exceptions=[entry], hardening={"level": level})
        for obj, denied in (
            (mounting(NCCL), False),
            (mounting(f"/{NCCL}/", "/var/lib/tcpx/lib64"), False),
            (mounting("/"), True),
            (mounting(NCCL, "/"), True),
            (mounting(f"{NCCL}/../../../../etc"), True),
            (mounting("/var/lib/tcpx/../docker"), True),
            (mounting(NCCL, hostPID=True), True),
        ):
            decision = decide(obj, own)
            assert (not decision.allowed) == denied, (level, obj["spec"]["volumes"])
    second = {**entry, "controls": ["hostNamespaces"], "values": ["hostPID"]}
    assert decide(mounting(NCCL, hostPID=True), policy(exceptions=[entry, second])).allowed
    added = pod({**GPU, **adding_capabilities("IPC_LOCK")})
    capability = {**entry, "controls": ["capabilities"], "values": ["IPC_LOCK"]}
    assert decide(added, policy(exceptions=[capability])).allowed
    other = pod({**GPU, **adding_capabilities("IPC_LOCK", "SYS_ADMIN")})
    assert not decide(other, policy(exceptions=[capability])).allowed


def test_a_partial_exception_that_expired_is_named_only_if_it_covered_the_whole() -> None:
    expired = {
        "rules": [PROFILE],
        "controls": ["hostPathVolumes"],
        "namespaces": ["*"],
        "reason": "NCCL",
        "expires": date(2020, 1, 1),
    }
    lasting = {**expired, "values": ["/a"]}
    del lasting["expires"]
    own, request = policy(exceptions=[expired, lasting]), Request(today=date(2021, 1, 1))
    [finding] = decide(mounting("/a", "/b"), own, request).findings
    assert "its exception (NCCL) expired on 2020-01-01" in finding.detail
    assert decide(mounting("/a"), own, request).allowed


def test_the_controls_of_exceptions_are_those_of_pod_security() -> None:
    names = {name_of(control) for controls in CONTROLS.values() for control in controls}
    assert names == {*get_args(ControlName)}


def test_an_exception_that_names_a_mutation_leaves_the_object_as_it_is() -> None:
    mutation = "restricted-security-context"
    entry = {"rules": [mutation], "namespaces": ["*"], "names": ["p"], "reason": "image"}
    own = policy(exceptions=[entry])
    privileged = {**GPU, "securityContext": {"privileged": True}}
    assert {each.rule for each in decide(pod(privileged), own).findings} == {PROFILE}
    for obj in (pod(GPU), {**pod(GPU), "metadata": {"name": "other"}}):
        operations = mutate(obj, own)
        changed = any("securityContext" in each.path for each in operations)
        assert changed == (obj["metadata"]["name"] == "other")
        assert any("tolerations" in each.path for each in operations)
        # The Pod lacks what gpufence adds, and is not denied for it.
        assert validate(decide(obj, own).mutated, own).allowed
    assert mutation not in decide(pod(GPU), own).mutations
    # An exception from all rules is one from all checks.
    every = policy(exceptions=[{"namespaces": ["*"], "reason": "all"}])
    assert mutation in decide(pod(GPU), every).mutations
    expired = policy(exceptions=[entry | {"expires": "2020-01-01"}])
    assert mutation in decide(pod(GPU), expired, Request(today=date(2020, 1, 1))).mutations
    kept = policy(exceptions=[{"rules": ["pool-toleration"], "namespaces": ["*"], "reason": "r"}])
    assert not [op for op in mutate(pod(GPU), kept) if "tolerations" in op.path]
    assert validate(decide(pod(GPU), kept).mutated, kept).allowed


def test_controls_and_values_belong_to_one_rule() -> None:
    for wrong, problem in (
        ({"controls": ["sysctls"]}, "has controls, which belong to one rule; set rules:"),
        ({"rules": [PROFILE], "values": ["/a"]}, "has values, which belong to controls"),
        ({"rules": [PROFILE], "controls": ["x"]}, "controls"),
    ):
        with pytest.raises(PolicyError, match=problem):
            policy(exceptions=[{"namespaces": ["a"], "reason": "r", **wrong}])

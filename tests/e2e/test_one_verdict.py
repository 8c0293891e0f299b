"""One verdict: of a file, the webhook, a template, its Pods, and Pod Security.

Each object is sent to a real API server (dry-run), and all answers are held against one another.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import Fence, running
from controlplane.objects import RESTRICTED
from controlplane.poll import until
from laws.profile import live_law as law
from pod_security_strategies import creatable_pods
from policies.decision import Decision
from policies.engine import decide
from policies.facts import Request
from policies.kubernetes.selector import NAMESPACE_LABEL
from policies.kubernetes.templates import find
from policies.rules.check_pool_trespass import ID as TRESPASS
from policies.rules.check_unrestricted_gpu_pod import ID as UNRESTRICTED
from specs import JSON, default_spec, policy_of
from valid_strategies import WORKLOADS, pod, valid_specs, workload
from webhook.controller.text.objects import Registration, configurations

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
AMD_POOL = {
    "name": "amd",
    "resources": ["amd.com/gpu"],
    "taints": [{"key": "amd.com/gpu"}, {"key": "gpu", "value": "true", "effect": "NoExecute"}],
    "nodeSelector": {"feature.node.kubernetes.io/amd-gpu": "true", "node-type": "gpu"},
}
SPEC: JSON = default_spec()
SPEC["pools"].append(AMD_POOL)
POLICY = policy_of(SPEC)
RULE = re.compile(r"^- ([a-z-]+): ", re.MULTILINE)
TOKEN_VOLUME = re.compile(r"kube-api-access-\w+")
PODS = "/api/v1/namespaces/{}/pods"
UNKNOWN_CLAIM: JSON = {
    "containers": [{"name": "main", "image": "a", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "missing"}],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
}


class Answer(NamedTuple):
    """What an API server says to an object."""

    verdict: str
    """`accepted`, `refused` by gpufence, `insecure` to Pod Security, or `invalid` to the API."""
    rules: tuple[str, ...] = ()
    """Of gpufence's findings, sorted."""
    spec: JSON | None = None
    """The accepted object without the fields that the API server generates for each request."""


class Spaces(NamedTuple):
    """Three namespaces: the second enforces Pod Security, of the third all objects are sent."""

    cluster: ControlPlane
    open: str
    restricted: str
    unconditional: str

    def send(self, path: str, namespace: str, obj: JSON) -> Answer:
        """Create the object (dry-run) in the namespace."""
        try:
            url = f"{path.format(namespace)}?dryRun=All"
            created = self.cluster.api.request("POST", url, obj)
        except ApiError as error:
            text = str(error)
            if 'gpufence.dev" denied the request' in text:
                return Answer("refused", tuple(sorted(RULE.findall(text))))
            if "violates PodSecurity" in text:
                return Answer("insecure")
            if error.status != 422 or "webhook" in text:
                raise
            return Answer("invalid")
        return Answer("accepted", spec=normal(created.get("spec")))


def normal(spec: Any) -> Any:
    """Return a spec without random names; the API server's own tolerations come first or last."""
    known = json.loads(TOKEN_VOLUME.sub("token", json.dumps(spec)))
    if known and "tolerations" in known:
        known["tolerations"].sort(key=json.dumps)
    return known


@pytest.fixture(scope="module")
def spaces(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Spaces]:
    found = Spaces(
        control_plane,
        control_plane.create_namespace("open-"),
        control_plane.create_namespace("restricted-", RESTRICTED),
        control_plane.create_namespace("unconditional-"),
    )
    directory = tmp_path_factory.mktemp("one-verdict")
    with running(control_plane, directory, SPEC) as fence, fence.registered():
        paths = register_unconditional(fence, found)
        try:
            until(lambda: is_sent_everything(found), "the API server to send everything")
            yield found
        finally:
            for path in paths:
                control_plane.api.request("DELETE", path)


def register_unconditional(fence: Fence, spaces: Spaces) -> list[str]:
    """Register the server once more, without conditions, for one namespace."""
    bundle = base64.b64encode(fence.server.authority).decode()
    registration = Registration(
        name="gpufence-unconditional", url=fence.server.url, ca_bundle=bundle
    )
    selector = {"key": NAMESPACE_LABEL, "operator": "In", "values": [spaces.unconditional]}
    paths = []
    for each in configurations(POLICY, registration):
        for webhook in each["webhooks"]:
            webhook["matchConditions"] = []
            webhook["namespaceSelector"] = {"matchExpressions": [selector]}
        path = f"{ADMISSION}/{each['kind'].lower()}s"
        spaces.cluster.api.request("POST", path, each)
        paths.append(f"{path}/{each['metadata']['name']}")
    return paths


def is_sent_everything(spaces: Spaces) -> bool:
    """Return whether a plain Pod is sent too, by the API server's own count."""
    count = re.compile(r"^apiserver_admission_webhook_request_total\{.*\} (\S+)$", re.MULTILINE)

    def call_count() -> float:
        return sum(map(float, count.findall(spaces.cluster.api.text("/metrics"))))

    before = call_count()
    plain = pod({"containers": [{"name": "main", "image": "plain"}]})
    spaces.send(PODS, spaces.unconditional, plain)
    return call_count() >= before + 2


@st.composite
def secured_specs(draw: st.DrawFn) -> JSON:
    """A Pod's spec that an API server mostly accepts, in half of the cases with security set."""
    spec: JSON = draw(valid_specs())
    if draw(st.booleans()):
        security: JSON = draw(creatable_pods())["spec"]
        given = [*security["containers"], *security["initContainers"]]
        for index, container in enumerate([*spec["containers"], *spec.get("initContainers", ())]):
            if context := given[index % len(given)].get("securityContext"):
                container["securityContext"] = context
        for field in ("securityContext", "hostUsers", "hostNetwork", "os"):
            if field in security:
                spec[field] = security[field]
    return spec


def decide_from_file(obj: JSON, namespace: str, answer: Answer) -> Decision:
    """Return what `gpufence check` decides, after comparing the rules that deny.

    The webhook fails closed: only it denies a Pod that tolerates the taint of a pool and uses an
    unknown claim. To `gpufence check`, this Pod is unknown.
    """
    decision = decide(obj, POLICY, Request(namespace=namespace))
    rules = {finding.rule for finding in decision.findings if finding.action == "enforce"}
    # Defaults of the API server only repeat a rule: hostNetwork brings host ports.
    assert rules <= set(answer.rules)
    assert set(answer.rules) - rules <= ({TRESPASS} if decision.unjudged else set())
    assert (answer.verdict == "refused") is bool(answer.rules)
    return decision


def test_law_check_webhook_and_pod_security_agree_on_a_pod(spaces: Spaces) -> None:
    tally: Counter[str] = Counter()

    @law
    @example(spec=UNKNOWN_CLAIM)
    @given(spec=secured_specs())
    def sent(spec: JSON) -> None:
        obj = pod(spec)
        answer = spaces.send(PODS, spaces.open, obj)
        tally[answer.verdict] += 1
        if answer.verdict == "invalid":
            return
        decision = decide_from_file(obj, spaces.open, answer)
        assert spaces.send(PODS, spaces.unconditional, obj) == answer
        if answer.verdict == "accepted":
            assert spaces.send(PODS, spaces.open, decision.mutated) == answer
        if decision.pools:
            secure = spaces.send(PODS, spaces.restricted, obj).verdict
            tally[f"GPU Pod, {secure}"] += 1
            assert (secure == "insecure") is (UNRESTRICTED in answer.rules)

    sent()
    print(f"\nPods: {dict(tally)}")
    assert tally["accepted"] + tally["refused"] > tally["invalid"]
    assert min(tally["accepted"], tally["refused"], tally["GPU Pod, accepted"]) > 0


def test_law_a_template_gets_the_verdict_of_its_pods(spaces: Spaces) -> None:
    """Except for DaemonSets: only Pods of their controller may tolerate everything."""
    tally: Counter[str] = Counter()
    kinds = sorted(WORKLOADS.keys() - {"DaemonSet"})

    @law
    @example(spec=UNKNOWN_CLAIM, kind="Deployment")
    @given(spec=secured_specs(), kind=st.sampled_from(kinds))
    def sent(spec: JSON, kind: str) -> None:
        obj, path = workload(kind, "work", spec), WORKLOADS[kind][1]
        answer = spaces.send(path, spaces.open, obj)
        tally[answer.verdict] += 1
        if answer.verdict == "invalid":
            return
        decision = decide_from_file(obj, spaces.open, answer)
        # All but the spec, which carries a generated identity.
        assert spaces.send(path, spaces.unconditional, obj)[:2] == answer[:2]
        [template], [mutated] = find(obj).templates, find(decision.mutated).templates
        its_pod = spaces.send(PODS, spaces.open, pod(template.raw["spec"]))
        assert its_pod.verdict == answer.verdict
        assert set(its_pod.rules) == set(answer.rules)
        if answer.verdict == "accepted":
            tally["mutated"] += decision.verdict == "mutated"
            assert spaces.send(PODS, spaces.open, pod(mutated.raw["spec"])) == its_pod

    sent()
    print(f"\nworkloads: {dict(tally)}")
    assert tally["accepted"] + tally["refused"] > tally["invalid"]
    assert min(tally["accepted"], tally["refused"], tally["mutated"]) > 0

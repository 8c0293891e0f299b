"""The MutatingAdmissionPolicy on a real API server, without any webhook.

What the API server makes of a Pod is what the mutating webhook would make of it, or nothing.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases.loading import Case, compiled
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.versions import MUTATING_POLICIES
from in_tree import SETUP_USER, create_runtime_class, kept_cases, of_pools
from laws.profile import live_law as law
from pod_security_strategies import creatable_pods
from policies.engine import decide, validate
from policies.facts import Facts, Request
from policies.policy import Policy
from strategies import JSON, gpu_pods, policies
from valid_strategies import pod, valid_specs
from webhook.controller.cel.admission_policies import MUTATING_BINDING_KIND, mutating_policy
from webhook.controller.cel.configurations import API_VERSION, Registration
from webhook.controller.cel.covered import MOST, MOST_TERMS

pytestmark = MUTATING_POLICIES

PODS = "/api/v1/namespaces/{}/pods"
_NUMBERS = itertools.count()
TOKEN_VOLUME = re.compile(r"kube-api-access-\w+")


class Mutating:
    """The policy of one FencePolicy, for the objects that are sent here: they get a label."""

    def __init__(self, cluster: ControlPlane, policy: Policy) -> None:
        self.cluster, self.policy = cluster, policy
        self.name = f"in-tree-{next(_NUMBERS)}"
        self.api = cache(lambda user: replace(cluster.api, user=user))
        """The client that impersonates a user."""

    def objects(self) -> tuple[JSON, ...]:
        """Return the policy, which exempts a user, and its binding; nothing if it covers no Pod."""
        exempt = self.policy.exemptions
        exempt = replace(exempt, usernames=exempt.usernames | {SETUP_USER})
        policy = replace(self.policy, exemptions=exempt)
        made = mutating_policy(policy, Registration(name=self.name), self.name)
        for obj in made[:1]:
            constraints = obj["spec"]["matchConstraints"]
            constraints["objectSelector"] = {"matchLabels": {"in-tree": self.name}}
        return made

    def create(
        self, obj: JSON, namespace: str = "default", user: str = "alice"
    ) -> tuple[JSON, JSON] | None:
        """Create the Pod as a dry run, without and with the policy; None if it is invalid."""
        path = f"{PODS.format(namespace)}?dryRun=All"
        metadata = obj.get("metadata", {})
        labels = {**(metadata.get("labels") or {}), "in-tree": self.name}
        sent = {**obj, "metadata": {**metadata, "labels": labels}}
        try:
            stored = self.api(user).request("POST", path, sent)
            return self.api(SETUP_USER).request("POST", path, sent), stored
        except ApiError as error:
            # Where a mutation makes a Pod valid, it has a request without a limit.
            if error.status in (400, 403, 404, 422):
                return None
            raise


def expected(obj: JSON, policy: Policy, request: Request) -> JSON:
    """Return the Pod as the mutating webhook changes it."""
    classes = frozenset(pool.runtime_class for pool in policy.pools if pool.runtime_class)
    return decide(obj, policy, request, Facts(runtime_classes=classes)).mutated


def normal(obj: JSON) -> JSON:
    """Return what a mutation may change, without random names and the order of lists."""
    known: JSON = json.loads(TOKEN_VOLUME.sub("token", json.dumps(obj["spec"])))
    for entries in known.get("tolerations") or [], *expressions(known):
        entries.sort(key=json.dumps)
    return {"spec": known, "annotations": obj["metadata"].get("annotations") or {}}


def expressions(spec: JSON) -> Iterator[list[Any]]:
    required = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = required.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        yield term.get("matchExpressions") or []


@contextmanager
def registered(cluster: ControlPlane, lines: Iterable[Mutating]) -> Iterator[None]:
    """Register the policies inside the block only."""
    objects = [obj for line in lines for obj in line.objects()]
    last = [line for line in lines if line.objects()][-1]
    try:
        for obj in objects:
            cluster.api.request("POST", collection(obj["kind"]), obj)
        until(lambda: is_mutated(last), "the API server to know the policies")
        yield
    finally:
        for obj in reversed(objects):
            with suppress(ApiError):
                path = f"{collection(obj['kind'])}/{obj['metadata']['name']}"
                cluster.api.request("DELETE", path)


def prepare(cluster: ControlPlane, policy: Policy, namespaces: Iterable[str]) -> None:
    """Create RuntimeClasses and namespaces, without which the API server rejects a Pod."""
    for pool in policy.pools:
        if pool.runtime_class:
            create_runtime_class(cluster, pool.runtime_class)
    for namespace in namespaces:
        cluster.create_namespace(namespace)


def is_mutated(line: Mutating) -> bool:
    """Return whether the API server mutates some Pod that requests one device."""
    for pool in line.policy.pools:
        for name in sorted(pool.resources.exact):
            labels = {key: (values or ("x",))[0] for key, values in pool.selector.items()}
            spec = {
                "containers": [{"name": "a", "image": "a", "resources": {"limits": {name: "1"}}}],
                "nodeSelector": labels,
            }
            found = line.create(pod(spec))
            if found and normal(found[0]) != normal(found[1]):
                return True
    return False


def collection(kind: str) -> str:
    plural = "policybindings" if kind == MUTATING_BINDING_KIND else "policies"
    return f"/apis/{API_VERSION}/mutatingadmission{plural}"


def judge(line: Mutating, obj: JSON, request: Request) -> tuple[str, str]:
    """Return what the API server made of the Pod; the second is what the law forbids."""
    found = line.create(obj, request.namespace, request.username)
    if found is None:
        return "invalid", ""
    before, stored = found
    wanted = expected(before, line.policy, request)
    if normal(stored) == normal(before):
        return ("left to the webhook" if normal(wanted) != normal(before) else "unchanged"), ""
    if normal(stored) != normal(wanted):
        return "wrong", f"{json.dumps(normal(stored))}\n is not {json.dumps(normal(wanted))}"
    enforced = [f for f in validate(stored, line.policy, request).findings if f.action == "enforce"]
    return "mutated", f"denied although mutated: {enforced}" if enforced else ""


@pytest.mark.parametrize("name", policies())
def test_law_the_api_server_mutates_a_pod_as_the_webhook_does_or_not_at_all(
    control_plane: ControlPlane, name: str
) -> None:
    tally: Counter[str] = Counter()
    policy = policies()[name]
    prepare(control_plane, policy, ["research"])
    line = Mutating(control_plane, policy)
    devices = sorted({resource for pool in policy.pools for resource in pool.resources.exact})
    with registered(control_plane, [line]):

        @law
        @given(data=st.data())
        def holds(data: st.DataObject) -> None:
            of = gpu_pods(data.draw(st.sampled_from(devices)))
            spec = data.draw(valid_specs(of))
            if data.draw(st.booleans()):
                merge_security(spec, data.draw(creatable_pods())["spec"])
            namespace = data.draw(st.sampled_from(["default", "research"]))
            request = Request(namespace=namespace, username="alice")
            verdict, wrong = judge(line, pod(spec), request)
            tally[verdict] += 1
            assert not wrong, wrong

        holds()
    print(f"\n{name}: {dict(tally)}")
    assert tally["mutated"] > 0
    assert tally["left to the webhook"] > 0


def merge_security(spec: JSON, other: JSON) -> None:
    """Take the security contexts and the fields of the Pod from another spec."""
    for kind in ("containers", "initContainers"):
        for container, secured in zip(spec.get(kind, []), other.get(kind, []), strict=False):
            container |= {k: v for k, v in secured.items() if k == "securityContext"}
    spec |= {k: v for k, v in other.items() if k not in ("containers", "initContainers")}


def test_the_api_server_mutates_each_case_as_the_webhook_does_or_not_at_all(
    control_plane: ControlPlane,
) -> None:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in kept_cases(control_plane):
        obj, written, request, _ = case.read()
        if obj["kind"] == "Pod" and request.operation == "CREATE":
            groups[json.dumps(written, sort_keys=True)].append(case)
    lines = {
        document: Mutating(control_plane, compiled(json.loads(document))) for document in groups
    }
    tally: Counter[str] = Counter()
    problems: list[str] = []
    for document, line in lines.items():
        spaces = {case.read()[2].namespace for case in groups[document]}
        prepare(control_plane, line.policy, spaces)
    with registered(control_plane, lines.values()):
        for document, line in lines.items():
            for case in groups[document]:
                obj, _, request, _ = case.read()
                verdict, wrong = judge(line, obj, request)
                tally[verdict] += 1
                problems += [f"{case}: {wrong}"] if wrong else []
    print(f"\n{len(groups)} policies, {sum(tally.values())} cases: {dict(tally)}")
    assert not problems, "\n".join(problems)
    assert tally["mutated"] > 0


@pytest.mark.parametrize("count", [1, 10])
def test_the_largest_covered_pod_stays_within_the_cost_that_the_api_server_allows(
    control_plane: ControlPlane, count: int
) -> None:
    policy = of_pools(count)
    env = [{"name": f"VARIABLE_{n}", "value": "x"} for n in range(900)]
    mounts = [{"name": f"v-{n}", "mountPath": f"/data/{n}"} for n in range(200)]
    container = {"image": "app", "env": env, "volumeMounts": mounts}
    device = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    containers = [
        {"name": f"c-{n}", **container, **(device if n == 0 else {})} for n in range(MOST)
    ]
    expressions = [
        {"key": f"l-{n}.example", "operator": "In", "values": [f"v{m}" for m in range(MOST)]}
        for n in range(MOST_TERMS)
    ]
    terms = [{"matchExpressions": expressions} for _ in range(MOST_TERMS)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {
        "containers": containers,
        "tolerations": [{"key": f"key-{n}.example", "operator": "Exists"} for n in range(MOST - 3)],
        "affinity": {"nodeAffinity": required},
        "volumes": [{"name": f"v-{n}", "emptyDir": {}} for n in range(200)],
    }
    line = Mutating(control_plane, policy)
    with registered(control_plane, [line]):
        started = time.perf_counter()
        found = line.create(pod(spec))
        print(f"\n{count} pools: {time.perf_counter() - started:.2f} s for two requests")
        assert found is not None
        assert normal(found[0]) != normal(found[1])
        verdict, wrong = judge(line, pod(spec), Request(username="alice"))
    assert (verdict, wrong) == ("mutated", "")

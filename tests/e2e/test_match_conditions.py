"""matchConditions on the real API server: never narrower than the engine, and never a failure."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cases.loading import compiled
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.versions import CLAIMS, RESIZE
from deciding import required
from each import each
from in_tree import create_runtime_class, kept_cases, path_of
from laws.profile import live_law as law
from policies.engine import mutate, validate
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from policies.policy import Exemptions, Policy, Pool
from policies.shipped import preset_text
from policies.vocabulary import ANNOTATIONS
from release.recorder import MARK, Recorder
from release.registered import ADMISSION, GPU, MARKS, Registered, registered
from specs import JSON, default_spec, policy_of
from strategies import facts
from valid_strategies import WORKLOADS, pod, valid_specs, workload
from webhook.controller.text.objects import Registration, configurations
from webhook.tools.cli.policy_diff.pods import classes, objects_of

NODES = NodeIndex(
    [
        Node("gpu-1", {"nvidia.com/gpu.present": "true", "node-type": "gpu", "gpu-memory": "80"}),
        Node("gpu-2", {"nvidia.com/gpu.present": "true", "gpu-memory": "40"}),
        Node("cpu-1", {"node-type": "cpu", "topology.kubernetes.io/zone": "a"}),
    ]
)


def ten_pools() -> Policy:
    """Return a policy of ten pools, two of the same devices among them, without exemptions."""
    [nvidia] = _default().pools
    large = replace(
        nvidia,
        name="large",
        node_selector={"nvidia.com/gpu.present": "large"},
        taints=(*nvidia.taints, Taint("gpu", "NoExecute", "true")),
    )
    others = tuple(
        Pool(
            name=f"pool-{index}",
            resources=NameSet([f"vendor-{index}.example/gpu", f"vendor-{index}.example/part-*"]),
            device_classes=frozenset({f"gpu.vendor-{index}.example"}),
            taints=(
                Taint(f"vendor-{index}.example/gpu", "NoSchedule"),
                Taint(("gpu", "dedicated", "amd.com/gpu")[index % 3], "NoExecute", "true"),
            ),
            node_selector={"node-type": "gpu", f"vendor-{index}.example/present": "true"},
        )
        for index in range(8)
    )
    return replace(_default(), pools=(nvidia, large, *others))


def _default() -> Policy:
    return policy_of(default_spec() | {"exemptions": {}})


def without_classes() -> Policy:
    """Return the default policy for a cluster whose GPUs are requested by resource only."""
    [nvidia] = _default().pools
    return replace(_default(), pools=(replace(nvidia, device_classes=frozenset()),))


def kai() -> Policy:
    """Return the policy for the KAI Scheduler, whose annotations request devices."""
    return policy_of(yaml.safe_load(preset_text("kai"))["spec"] | {"exemptions": {}})


POLICIES = {
    "default": _default(),
    "ten pools": ten_pools(),
    "no classes": without_classes(),
    "kai": kai(),
}


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    with Recorder(tmp_path_factory.mktemp("recorder")) as recorder:
        yield recorder


Path = tuple[str, ...]
ADVICE = {
    # The mutation adds them, and no Pod is denied without.
    ("Pod", "metadata.annotations", "pool-requirements", "warn"),
    # Replicas scale while no replica of gpufence answers.
    ("Deployment", "spec.replicas", "stuck-rollout", "warn"),
    ("Job", "spec.parallelism", "oversized-gang", "warn"),
    ("StatefulSet", "spec.replicas", "oversized-gang", "warn"),
}
"""What a rule reads, and no update sends: it only warns."""


@pytest.mark.slow("updates the object of every case")
def test_an_update_of_what_a_rule_reads_calls_the_webhook(
    control_plane: ControlPlane, recorder: Recorder
) -> None:
    """For each case of each rule: one field is added, another time it is removed.

    The condition compares whole pod templates, so the other fields count. This test comes
    first: the fixture ``hook`` registers webhooks of the same name.
    """
    found: dict[str, tuple[Policy, dict[Any, list[tuple[JSON, Any]]]]] = {}
    """By what is registered: the policy, and for each reading of a field, what may change so."""
    for case in kept_cases(control_plane):
        obj, spec, request, known = case.read()
        if request.namespace != "default":
            continue
        registration, policy = registered_for(compiled(spec))
        _, changes = found.setdefault(registration, (policy, {}))
        for path in beside_the_template(obj):
            without = changed(obj, path, None)
            for old, new in ((without, obj), (obj, without)):
                update = msgspec.structs.replace(
                    request, operation="UPDATE", old=old, subresource="", fail_closed=True
                )
                for finding in validate(new, compiled(spec), update, known).findings:
                    reading = (obj["kind"], ".".join(path[:2]), finding.rule, finding.action)
                    change = (path, new is obj, reading)
                    changes.setdefault(change, []).append((old, at(new, path)))
    tally: Counter[str] = Counter()
    missed: set[tuple[str, ...]] = set()
    for policy, changes in found.values():
        if not changes:
            continue
        with registered(control_plane, recorder, policy, NODES) as hook:
            for (path, _, reading), examples in changes.items():
                called = (is_called_for(hook, old, path, value) for old, value in examples)
                # The API server finds some of them invalid.
                outcome = next((each for each in called if each is not None), None)
                tally[str(outcome)] += 1
                if outcome is False:
                    missed.add(reading)
    print(f"\n{dict(tally)}")
    assert tally["True"] > 40
    assert missed == ADVICE


def is_called_for(hook: Registered, old: JSON, path: Path, value: Any) -> bool | None:
    """Return whether an update of a field calls the webhook; None if it is invalid."""
    with stored(hook, old) as (url, created):
        if not created:
            return None
        mark, updated = hook.send("PUT", url, changed(created, path, value))
        return None if updated is None else bool(hook.called_endpoints(mark))


@cache
def registered_for(policy: Policy) -> tuple[str, Policy]:
    """Return what is registered for a policy without its exemptions, and that policy."""
    policy = replace(policy, exemptions=Exemptions())
    return json.dumps(configurations(policy, Registration()), default=str), policy


def beside_the_template(obj: JSON) -> Iterator[Path]:
    """Yield the path of each field that is in no pod template, nor in the spec of a Pod."""
    waiting: list[Path] = [("metadata", field) for field in ("labels", "annotations")]
    waiting += [("spec", field) for field in obj.get("spec", ()) if obj["kind"] != "Pod"]
    while waiting:
        path = waiting.pop()
        value = at(obj, path)
        if value is not None and "template" not in path:
            yield path
            if isinstance(value, dict):
                waiting += [(*path, key) for key in value]


def at(obj: JSON, path: Path) -> Any:
    for step in path:
        obj = obj.get(step, {})
    return obj or None


def changed(obj: JSON, path: Path, value: Any) -> JSON:
    """Return a copy of the object with a value at a path; without one if the value is None."""
    copy: JSON = json.loads(json.dumps(obj, default=str))
    *steps, last = path
    part = copy
    for step in steps:
        part = part.setdefault(step, {})
    part.pop(last, None)
    if value is not None:
        part[last] = value
    return copy


@contextmanager
def stored(hook: Registered, obj: JSON) -> Iterator[tuple[str, JSON]]:
    """Create the object inside the block; nothing, if the API server rejects it."""
    api, path = hook.cluster.api, path_of(obj, "default") or ""
    try:
        created = api.request("POST", path, obj)
    except ApiError:
        yield "", {}
        return
    url = f"{path}/{created['metadata']['name']}"
    try:
        yield url, created
    finally:
        api.request("DELETE", f"{url}?gracePeriodSeconds=0&propagationPolicy=Background")


@pytest.fixture(
    scope="module",
    params=[("default", NODES), ("ten pools", None)],
    ids=["default-with-nodes", "ten-pools"],
)
def hook(
    request: pytest.FixtureRequest, control_plane: ControlPlane, recorder: Recorder
) -> Iterator[Registered]:
    name, nodes = request.param
    with registered(control_plane, recorder, POLICIES[name], nodes) as hook:
        yield hook


class Tally:
    """How the examples were distributed: a law that only saw one side says little."""

    def __init__(self) -> None:
        self.accepted = self.invalid = self.called = self.needed = 0

    def __str__(self) -> str:
        return (
            f"{self.accepted} accepted by the API server ({self.invalid} were invalid), "
            f"{self.called} called the webhook, for {self.needed} the engine has something to say"
        )


def required_endpoints(
    hook: Registered, obj: JSON, known: Facts, old: JSON | None = None
) -> set[str]:
    """Return the endpoints at which the engine would change the object, or find something."""
    facts = msgspec.structs.replace(known, nodes=hook.nodes)
    request = Request(old=old, operation="UPDATE" if old else "CREATE")
    required = set()
    if obj["kind"] == "Pod" and mutate(obj, hook.policy, request, facts):
        required.add("/mutate")
    if validate(obj, hook.policy, request, facts).findings:
        required.add("/validate")
    return required


def check(hook: Registered, tally: Tally, method: str, path: str, obj: JSON, known: Facts) -> None:
    old = hook.cluster.api.request("GET", path) if method == "PUT" else None
    mark, created = hook.send(method, path, obj)
    if created is None:
        tally.invalid += 1
        return
    tally.accepted += 1
    called = hook.called_endpoints(mark)
    required = required_endpoints(hook, created, known, old)
    tally.called += bool(called)
    tally.needed += bool(required)
    assert required <= called, json.dumps(obj)


def test_law_the_webhook_is_called_for_every_pod_that_the_engine_changes(hook: Registered) -> None:
    tally = Tally()

    @law
    @given(spec=valid_specs(), known=facts())
    def created(spec: JSON, known: Facts) -> None:
        check(hook, tally, "POST", "/api/v1/namespaces/default/pods", pod(spec), known)

    before = failures(hook.cluster)
    created()
    print(f"\nPods: {tally}")
    assert tally.accepted > tally.invalid
    assert tally.needed > tally.accepted / 10
    assert tally.called < tally.accepted
    assert failures(hook.cluster) == before


def test_law_the_webhook_is_called_for_every_workload_with_findings(hook: Registered) -> None:
    tally = Tally()
    api = hook.cluster.api
    plain = {"containers": [{"name": "main", "image": "plain"}]}
    for kind, (_, path) in WORKLOADS.items():
        with_name = workload(kind, f"plain-{kind.lower()}", plain)
        api.request("POST", path.format("default"), with_name)

    @law
    @given(spec=valid_specs(), known=facts(), kind=st.sampled_from(sorted(WORKLOADS)))
    def sent(spec: JSON, known: Facts, kind: str) -> None:
        path = WORKLOADS[kind][1].format("default")
        check(hook, tally, "POST", path, workload(kind, "created", spec), known)
        # Only of these may the template be changed at all.
        if kind not in ("Job", "ReplicaSet"):
            name = f"plain-{kind.lower()}"
            check(hook, tally, "PUT", f"{path}/{name}", workload(kind, name, spec), known)

    before = failures(hook.cluster)
    try:
        sent()
    finally:
        for kind, (_, path) in WORKLOADS.items():
            api.request("DELETE", f"{path.format('default')}/plain-{kind.lower()}")
    print(f"\nworkloads: {tally}")
    assert tally.accepted > tally.invalid
    assert tally.needed > tally.accepted / 10
    assert tally.called < tally.accepted
    assert failures(hook.cluster) == before


MAIN: JSON = {"name": "main", "image": "app"}
ENV: JSON = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}


def reaching(**spec: Any) -> JSON:
    return {"containers": [MAIN], **spec}


SELECTED = "/var/run/nvidia-container-devices/all"
FILE = "dev/$(E)nvidia0"
ALONE: dict[str, JSON] = {
    "a claim": reaching(resourceClaims=[{"name": "c", "resourceClaimName": "one"}]),
    "a toleration": reaching(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    "a variable in an init container": reaching(initContainers=[{**MAIN, "name": "init", **ENV}]),
    "a volume": reaching(volumes=[{"name": "v", "hostPath": {"path": "/dev/kfd"}}]),
    "a legacy image": reaching(
        containers=[{**MAIN, "env": [{"name": "CUDA_VERSION", "value": "9.0"}]}]
    ),
    "a mount that selects devices": reaching(
        containers=[{**MAIN, "volumeMounts": [{"name": "v", "mountPath": SELECTED}]}],
        volumes=[{"name": "v", "hostPath": {"path": "/dev/null"}}],
    ),
    "a device file by a path with a variable": reaching(
        containers=[
            {**MAIN, "volumeMounts": [{"name": "v", "mountPath": "/g", "subPathExpr": FILE}]}
        ],
        volumes=[{"name": "v", "hostPath": {"path": "/"}}],
    ),
    "a node by its name": reaching(nodeName="gpu-1"),
    "a node by a field": reaching(**required("metadata.name In gpu-1")),
    "a node by another label": reaching(nodeSelector={"gpu-memory": "40"}),
    "a device of another vendor": reaching(
        containers=[{**MAIN, "resources": {"limits": {"google.com/tpu": "4"}}}]
    ),
    "nodes by another label": reaching(
        **required({"matchExpressions": [{"key": "gpu-memory", "operator": "Exists"}]})
    ),
}
"""Ways to reach for GPU nodes, each alone, besides the traits of Pods."""
BY_NODES = (
    "a node by its name",
    "a node by a field",
    "a node by another label",
    "nodes by another label",
)
"""Ways that the API server sends only for a replica that knows the nodes."""

KNOWN = Facts(claims={("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))})


def test_the_webhook_is_called_for_each_trait_of_pods_that_the_engine_sees(
    hook: Registered,
) -> None:
    """The values that ``gpufence policy diff`` compares, each alone in a Pod and in a template."""
    create_runtime_class(hook.cluster, "nvidia")
    traits = dict.fromkeys(own for own in classes(hook.policy, hook.policy) if len(own) < 2)
    made = [objects_of(own, "default") for own in traits]
    alone = [obj for obj, *more in made if not more and obj["kind"] == "Pod"]
    tally = try_each(hook, alone[:: 1 + len(alone) // 60])
    print(f"\ntraits: {tally}")
    assert tally.needed > tally.accepted / 4
    assert tally.called < tally.accepted


def try_each(hook: Registered, pods: Iterable[JSON]) -> Tally:
    """Send each in a Pod, and in a Deployment that is created and one that is changed."""
    api, tally, path = hook.cluster.api, Tally(), WORKLOADS["Deployment"][1].format("default")
    api.request("POST", path, workload("Deployment", "plain", reaching()))
    try:
        for obj in pods:
            check(hook, tally, "POST", "/api/v1/namespaces/default/pods", obj, KNOWN)
            annotations = obj["metadata"].get("annotations", {})
            for method, where, name in ("POST", path, "other"), ("PUT", f"{path}/plain", "plain"):
                sent = workload("Deployment", name, obj["spec"], annotations=annotations)
                check(hook, tally, method, where, sent, KNOWN)
    finally:
        api.request("DELETE", f"{path}/plain")
    return tally


def test_each_single_way_to_select_gpu_nodes_calls_the_webhook(hook: Registered) -> None:
    ways = ALONE.keys() - {"a claim", *(() if hook.nodes else BY_NODES)}
    tally = try_each(hook, [pod(ALONE[way]) for way in sorted(ways)])
    assert tally.accepted == tally.needed == 3 * len(ways)


def test_a_privileged_node_agent_calls_the_webhook(hook: Registered) -> None:
    privileged = [{**MAIN, "securityContext": {"privileged": True}}]
    spec = reaching(containers=privileged, tolerations=[{"operator": "Exists"}])
    agent, path = workload("DaemonSet", "agent", spec), WORKLOADS["DaemonSet"][1].format("default")
    check(hook, tally := Tally(), "POST", path, agent, KNOWN)
    assert tally.needed == 1


@CLAIMS
def test_a_claim_alone_calls_the_webhook(hook: Registered) -> None:
    tally = try_each(hook, [pod(ALONE["a claim"])])
    # A device in a template is nothing to object to.
    assert tally.accepted == 3
    assert tally.needed >= 1


IMPLICIT = {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}}


@CLAIMS
@pytest.mark.parametrize("hook", [("no classes", NODES)], indirect=True, ids=["no-classes"])
def test_no_device_of_a_class_calls_the_webhook_for_a_policy_without_classes(
    hook: Registered,
) -> None:
    before = failures(hook.cluster)
    for spec in (ALONE["a claim"], reaching(containers=[{**MAIN, "resources": IMPLICIT}])):
        mark, created = hook.send("POST", "/api/v1/namespaces/default/pods", pod(spec))
        assert created is not None
        assert hook.called_endpoints(mark) == set()
    assert failures(hook.cluster) == before


@pytest.mark.parametrize(
    ("variable", "is_called"), [("NVIDIA_VISIBLE_DEVICES", True), ("MODE", False)]
)
def test_only_a_debug_container_with_a_device_variable_calls_the_webhook(
    hook: Registered, variable: str, is_called: bool
) -> None:
    api, path = hook.cluster.api, "/api/v1/namespaces/default/pods"
    # The subresource takes nothing of the metadata that are sent: the Pod has its mark already.
    mark = f"object-{next(MARKS)}"
    plain = {"containers": [{"name": "a", "image": "a"}]}
    created = api.request("POST", path, pod(plain, annotations={MARK: mark}))
    assert hook.called_endpoints(mark) == set()
    env = [{"name": variable, "value": "all"}]
    created["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "cuda", "env": env}]
    where = f"{path}/{created['metadata']['name']}"
    try:
        del created["metadata"]["resourceVersion"]
        api.request("PUT", f"{where}/ephemeralcontainers", created)
    finally:
        api.request("DELETE", f"{where}?gracePeriodSeconds=0")
    assert hook.called_endpoints(mark) == ({"/validate"} if is_called else set())


@pytest.mark.parametrize(
    "subresource", ["ephemeralcontainers", pytest.param("resize", marks=RESIZE)]
)
@pytest.mark.parametrize("hook", [("default", NODES)], indirect=True, ids=["default"])
def test_what_a_subresource_cannot_change_is_read_from_the_stored_pod(
    hook: Registered, subresource: str
) -> None:
    """The API server restores all but the new containers, whatever the same request says."""
    api, path = hook.cluster.api, "/api/v1/namespaces/default/pods"
    mark = f"object-{next(MARKS)}"
    size = {"limits": {**GPU["limits"], "cpu": "1"}}
    spec = reaching(containers=[{**MAIN, "resources": size}])
    created = api.request("POST", path, pod(spec, annotations={MARK: mark}))
    hook.recorder.endpoints[mark].clear()
    changed = json.loads(json.dumps(created))
    changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    del changed["metadata"]["resourceVersion"]
    changed["spec"]["tolerations"] = []
    if subresource == "resize":
        changed["spec"]["containers"][0]["resources"] = {
            side: {**size["limits"], "cpu": "2"} for side in ("limits", "requests")
        }
    else:
        del changed["spec"]["containers"][0]["resources"]
        changed["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "shell"}]
    where = f"{path}/{created['metadata']['name']}"
    try:
        api.request("PUT", f"{where}/{subresource}", changed)
    finally:
        api.request("DELETE", f"{where}?gracePeriodSeconds=0")
    expected = {"/mutate", "/validate"} if subresource == "ephemeralcontainers" else {"/validate"}
    assert hook.called_endpoints(mark) == expected


UNREAD = {
    "a label of a Pod": ("Pod", ("metadata", "labels", "other"), "x"),
    "a label of a Job": ("Job", ("metadata", "labels", "other"), "x"),
    "more replicas": ("Deployment", ("spec", "replicas"), 3),
    "a suspended CronJob": ("CronJob", ("spec", "suspend"), True),
}


@pytest.mark.parametrize("hook", [("default", NODES)], indirect=True, ids=["default"])
@pytest.mark.parametrize("what", UNREAD)
def test_an_update_of_nothing_that_a_rule_reads_calls_no_webhook(
    hook: Registered, what: str
) -> None:
    kind, path, value = UNREAD[what]
    spec, name = reaching(containers=[{**MAIN, "resources": GPU}]), f"updated-{next(MARKS)}"
    obj = workload(kind, name, spec) if kind != "Pod" else pod(spec)
    with stored(hook, obj) as (url, created):
        mark, updated = hook.send("PUT", url, changed(created, path, value))
    assert updated is not None
    assert hook.called_endpoints(mark) == set()


@pytest.mark.parametrize("hook", [("default", NODES)], indirect=True, ids=["default"])
def test_an_update_of_a_pod_that_has_its_node_calls_no_webhook(hook: Registered) -> None:
    with stored(hook, pod(reaching(nodeName="cpu-1"))) as (url, created):
        other = [{**created["spec"]["containers"][0], "image": "other"}]
        mark, updated = hook.send("PUT", url, changed(created, ("spec", "containers"), other))
    assert updated is not None
    assert hook.called_endpoints(mark) == set()


@pytest.mark.parametrize("hook", [("default", NODES)], indirect=True, ids=["default"])
def test_a_pod_that_tolerates_every_taint_of_another_effect_calls_nothing(hook: Registered) -> None:
    evicted = reaching(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    mark, _ = hook.send("POST", "/api/v1/namespaces/default/pods", pod(evicted))
    assert hook.called_endpoints(mark) == set()


def test_a_pod_with_an_annotation_that_adds_devices_calls_the_webhook(hook: Registered) -> None:
    def calls(key: str) -> None:
        obj = pod(reaching(), annotations={key: "- path: /dev/nvidia0"})
        mark, _ = hook.send("POST", "/api/v1/namespaces/default/pods", obj)
        assert "/validate" in hook.called_endpoints(mark)

    each([key + scope for key in sorted(ANNOTATIONS) for scope in ("", "/pod")], calls)


@pytest.mark.parametrize("hook", [("kai", None)], indirect=True, ids=["kai"])
def test_pods_with_annotations_that_request_a_device_call_the_webhook(hook: Registered) -> None:
    path = "/api/v1/namespaces/default/pods"
    shared = reaching(schedulerName="kai-scheduler", schedulingGates=[{"name": "example.com/wait"}])
    fraction = {"gpu-fraction": "0.5"}
    before = failures(hook.cluster)
    mark, _ = hook.send("POST", path, pod(shared, annotations=fraction))
    assert hook.called_endpoints(mark) == {"/mutate", "/validate"}
    mark, _ = hook.send("POST", path, pod(shared, annotations={"another": "0.5"}))
    assert hook.called_endpoints(mark) == set()
    for kind in ("Deployment", "CronJob", "PodTemplate"):
        job = workload(kind, "shared", shared, annotations=fraction)
        mark, _ = hook.send("POST", WORKLOADS[kind][1].format("default"), job)
        assert hook.called_endpoints(mark) == {"/validate"}
    created = hook.cluster.api.request(
        "POST",
        path,
        pod(
            {**shared, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
            annotations=fraction,
        ),
    )
    try:
        where = f"{path}/{created['metadata']['name']}"
        labeled = {**created, "metadata": {**created["metadata"], "labels": {"app": "train"}}}
        assert hook.called_endpoints(hook.send("PUT", where, labeled)[0]) == set()
        removed = {**created, "metadata": {**created["metadata"], "annotations": {}}}
        assert hook.called_endpoints(hook.send("PUT", where, removed)[0]) == {"/validate"}
        other = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "peek"}
        moved = {**created, "metadata": {**created["metadata"], "annotations": other}}
        assert hook.called_endpoints(hook.send("PUT", where, moved)[0]) == {"/validate"}
    finally:
        hook.cluster.api.request("DELETE", f"{where}?gracePeriodSeconds=0")
    assert failures(hook.cluster) == before


def full(**more: int) -> JSON:
    """Return a Pod with as much as the conditions search, or with more of something.

    The API server adds two tolerations.
    """
    lists = dict.fromkeys(
        ("containers", "tolerations", "selector", "terms", "volumes", "keys"), 200
    )
    count = {**lists, "tolerations": 198, "env": 2000, "expressions": 2000, "path": 4096}
    count |= {"mounts": 0, "quantities": 0, **more}

    def spread(entries: int, over: int) -> list[int]:
        return [entries // over + (n < entries % over) for n in range(over)]

    terms: list[JSON] = [
        {"matchExpressions": [{"key": f"l-{n}.example", "operator": "Exists"}] * size}
        for n, size in enumerate(spread(count["expressions"], count["terms"]))
    ]
    spec = {
        "automountServiceAccountToken": False,
        "containers": [
            {"name": f"c-{n}", "image": "app", "env": [{"name": "A"}] * size}
            for n, size in enumerate(spread(count["env"], count["containers"]))
        ],
        "tolerations": [
            {"key": f"key-{n}.example", "operator": "Exists"} for n in range(count["tolerations"])
        ],
        "nodeSelector": {f"l-{n}.example": "a" for n in range(count["selector"])},
        **required(*terms),
        "volumes": [
            {
                "name": f"v-{n}",
                "hostPath": {"path": "/" + "a" * (count["path"] - 1 if not n else 9)},
            }
            for n in range(count["volumes"])
        ],
    }
    spec["containers"][0] |= {
        "volumeMounts": [{"name": "v-0", "mountPath": "/v"}] * count["mounts"],
        "resources": {"limits": dict.fromkeys(["cpu"][: count["quantities"]], "1")},
    }
    # One annotation is the mark.
    return pod(spec, annotations={f"a-{n}": "" for n in range(count["keys"] - 1)})


# The conditions are constant text, and the policy is their data: ten pools have the most.
@pytest.mark.parametrize("hook", [("ten pools", None)], indirect=True, ids=["ten-pools"])
def test_only_a_pod_with_too_much_to_search_calls_the_webhook(hook: Registered) -> None:
    before = failures(hook.cluster)

    def called(**more: int) -> set[str]:
        mark, created = hook.send("POST", "/api/v1/namespaces/default/pods", full(**more))
        assert created is not None
        return hook.called_endpoints(mark)

    def calls(what: str) -> None:
        count = {"env": 2001, "expressions": 2001, "path": 4097, "tolerations": 199}
        count |= {"mounts": 1, "quantities": 1}
        changes = what in ("containers", "tolerations")
        needed = {"/validate", *(["/mutate"] if changes else [])}
        assert needed <= called(**{what: count.get(what, 201)})

    assert called() == set()
    each(
        [
            "containers",
            "tolerations",
            "selector",
            "terms",
            "volumes",
            "keys",
            "env",
            "expressions",
            "path",
            "mounts",
            "quantities",
        ],
        calls,
    )
    assert failures(hook.cluster) == before


ERRORS = re.compile(
    r"^apiserver_admission_match_condition_evaluation_errors_total\{.*\} (\S+)$", re.MULTILINE
)


def failures(cluster: ControlPlane) -> float:
    """Return how many matchConditions have failed so far, by the API server's own count."""
    return sum(map(float, ERRORS.findall(cluster.api.text("/metrics"))))


def test_the_api_server_counts_a_failing_match_condition(
    control_plane: ControlPlane, recorder: Recorder
) -> None:
    """What the tests above count on."""
    before = failures(control_plane)
    bundle = base64.b64encode(recorder.authority).decode()
    broken: Any = configurations(
        POLICIES["default"], Registration(name="broken", url=recorder.url, ca_bundle=bundle)
    )[0]
    broken["webhooks"][0]["matchConditions"][1]["expression"] = "object.spec.nodeSelector == {}"
    path = f"{ADMISSION}/mutatingwebhookconfigurations"
    control_plane.api.request("POST", path, broken)
    plain = pod({"containers": [{"name": "a", "image": "a"}]})

    def is_refused() -> bool:
        try:
            control_plane.api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", plain)
        except ApiError:
            return True
        return False

    try:
        until(is_refused, "the broken condition to be in force")
    finally:
        control_plane.api.request("DELETE", f"{path}/broken")
    until(lambda: not is_refused(), "the broken condition to be gone")
    assert failures(control_plane) > before

"""What happens between the two reviews of a Pod: other webhooks, and claims that change."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, SELECTOR, device_class, driver_devices
from controlplane.fence import following
from controlplane.gpufence import Server
from controlplane.objects import GPU_NODE, claim_template, pod
from controlplane.poll import until
from controlplane.versions import CLAIMS
from each import each
from release.recorder import Patching
from specs import JSON, default_spec

Change = Callable[[JSON], list[JSON]]
"""Returns the JSON Patch of a webhook for the Pod that it gets."""

GPU = "nvidia.com/gpu"
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
GATE = {"name": "kueue.x-k8s.io/admission"}

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def server(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A registered webhook that reads claims and nodes."""
    with following(control_plane, tmp_path_factory.mktemp("other-webhooks"), default_spec()) as it:
        yield it


def add(path: str, value: Any) -> JSON:
    return {"op": "add", "path": path, "value": value}


def adds_a_sidecar(obj: JSON) -> list[JSON]:
    """As service meshes do."""
    if "proxy" in [each["name"] for each in obj["spec"]["containers"]]:
        return []
    return [add("/spec/containers/-", {"name": "proxy", "image": "envoyproxy/envoy:v1.36"})]


def holds_and_selects(obj: JSON) -> list[JSON]:
    """As queues do, and webhooks that give a namespace its nodes."""
    if obj["spec"].get("schedulingGates"):
        return []
    return [
        add("/spec/schedulingGates", [GATE]),
        add("/spec/nodeSelector", {"topology.kubernetes.io/zone": "a"}),
        add("/spec/schedulerName", "default-scheduler"),
    ]


def requests_a_gpu(obj: JSON) -> list[JSON]:
    """As webhooks do that read the request from elsewhere, for example an annotation."""
    if obj["spec"]["containers"][0].get("resources"):
        return []
    limits = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    return [add("/spec/containers/0/resources", limits)]


def removes_what_it_does_not_know(obj: JSON) -> list[JSON]:
    """As a webhook does that writes a whole Pod again."""
    removed = [{"op": "remove", "path": "/spec/affinity"}] if "affinity" in obj["spec"] else []
    for number, container in enumerate(obj["spec"]["containers"]):
        if VOID in container.get("env", []):
            removed.append({"op": "remove", "path": f"/spec/containers/{number}/env"})
    return removed


Order = tuple[str, str]
"""The name of the other webhook's configuration, and its reinvocation policy."""
ORDERS: list[Order] = [
    ("aa-first", "Never"),
    ("aa-first", "IfNeeded"),
    ("zz-last", "Never"),
    ("zz-last", "IfNeeded"),
]
CHANGES: list[Change] = [
    adds_a_sidecar,
    holds_and_selects,
    requests_a_gpu,
    removes_what_it_does_not_know,
]


class OtherWebhook(Patching):
    """Patches Pods, and notes their namespaces."""

    def __init__(self, directory: Path, change: Change) -> None:
        super().__init__(directory)
        self._change = change
        self.namespaces: set[str] = set()

    def patch(self, obj: JSON) -> list[JSON]:
        self.namespaces.add(obj["metadata"]["namespace"])
        return self._change(obj)


@pytest.fixture(scope="module")
def spaces(
    control_plane: ControlPlane, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[Change, Order], str]]:
    """A namespace for each change in each order, whose Pods another webhook gets."""
    api, found = control_plane.api, {}
    with ExitStack() as stack:
        for change in CHANGES:
            directory = tmp_path_factory.mktemp("other")
            other = stack.enter_context(OtherWebhook(directory, change))
            for order in ORDERS:
                namespace = found[change, order] = control_plane.create_namespace("others-")
                stack.callback(control_plane.delete_workloads, namespace)
                name, reinvocation = order
                selected = {"kubernetes.io/metadata.name": namespace}
                obj = other.configuration(f"{name}-{namespace}", selected, reinvocation)
                path = f"{CONFIGURATIONS}/{obj['metadata']['name']}"
                stack.callback(api.request, "DELETE", path)
                api.request("POST", CONFIGURATIONS, obj)
                until(partial(is_called, api, other, namespace), "the other webhook to be called")
        yield found


def is_called(api: Api, other: OtherWebhook, namespace: str) -> bool:
    probe = pod({GPU: "1"}, "probe", tolerations=[{"operator": "Exists"}])
    api.refusal(f"/api/v1/namespaces/{namespace}/pods", probe)
    return namespace in other.namespaces


def lacks(created: JSON) -> set[str]:
    """Return what the created GPU Pod lacks of all that gpufence adds."""
    spec, found = created["spec"], set()
    if "affinity" not in spec:
        found.add("affinity")
    if GPU not in [each.get("key") for each in spec["tolerations"]]:
        found.add("toleration")
    for container in spec["containers"]:
        if container["securityContext"].get("allowPrivilegeEscalation") is not False:
            found.add(f"security context of {container['name']}")
        devices = container.get("resources", {}).get("limits", {})
        if GPU not in devices and VOID not in container.get("env", []):
            found.add(f"void of {container['name']}")
    return found


def two_containers() -> JSON:
    obj = pod({GPU: "1"}, "train")
    obj["spec"]["containers"].append({"name": "logs", "image": "registry.example/logs"})
    return obj


def test_a_pod_that_another_webhook_changes_is_complete_or_denied(
    control_plane: ControlPlane, spaces: dict[tuple[Change, Order], str]
) -> None:
    def created(case: tuple[Change, Order]) -> None:
        change, order = case
        path = f"/api/v1/namespaces/{spaces[case]}/pods"
        obj = pod(name="train") if change is requests_a_gpu else two_containers()
        if change is removes_what_it_does_not_know and order == ("zz-last", "IfNeeded"):
            message = control_plane.api.refusal(path, obj)
            for rule in ("pool-node-affinity", "void-visible-devices"):
                assert f"- {rule}: spec: gpufence adds " in message
            assert "the last one must be gpufence" in message
            return
        if change is requests_a_gpu and order[0] == "zz-last":
            # The match condition did not hold, and an API server does not evaluate it again.
            message = control_plane.api.refusal(path, obj)
            assert "- pool-toleration: spec: gpufence adds spec.tolerations" in message, message
            return
        made = control_plane.api.request("POST", path, obj)
        assert lacks(made) == set()
        if change is adds_a_sidecar:
            assert len(made["spec"]["containers"]) == 3
        if change is holds_and_selects:
            assert made["spec"]["schedulingGates"] == [GATE]

    each(itertools.product(CHANGES, ORDERS), created)


# Claims.


def hardened(**spec: Any) -> JSON:
    """Return a Pod that meets the profile by itself, with a container that claims nothing."""
    dropped = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = {
        "name": "main",
        "image": "cuda",
        "securityContext": dropped,
        "resources": {"claims": [{"name": "gpu"}]},
    }
    beside = {"name": "beside", "image": "cuda", "securityContext": dropped}
    identity = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "devices"}]
    return {
        "metadata": {"generateName": "racing-"},
        "spec": {
            "containers": [main, beside],
            "securityContext": identity,
            "resourceClaims": claims,
            "tolerations": [{"key": GPU, "operator": "Exists"}],
            **spec,
        },
    }


TRIES = 60
"""Before gpufence validated what it had added, a quarter of the Pods came through."""


@pytest.mark.slow("needs many tries to hit the moment")
@CLAIMS
def test_a_pod_whose_claim_template_is_replaced_meanwhile_is_complete_or_denied(
    control_plane: ControlPlane, namespace: str
) -> None:
    templates = f"{DRA}/namespaces/{namespace}/resourceclaimtemplates"
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    done = threading.Event()

    def replace_again_and_again() -> None:
        while not done.is_set():
            for name in ("gpu.nvidia.com", "nic.example.com"):
                control_plane.api.request("POST", templates, claim_template("devices", name))
                control_plane.api.request("DELETE", f"{templates}/devices")

    outcomes: Counter[str] = Counter()
    replacing = threading.Thread(target=replace_again_and_again)
    with device_class(control_plane):
        replacing.start()
        try:
            for _ in range(TRIES):
                try:
                    created = control_plane.api.request("POST", path, hardened())
                except ApiError as error:
                    rules = ("void-visible-devices", "pool-trespass")
                    outcomes[next((r for r in rules if f"- {r}" in str(error)), str(error))] += 1
                else:
                    missing = lacks(created) - {"void of main"}
                    outcomes[f"created without {missing}" if missing else "complete"] += 1
        finally:
            done.set()
            replacing.join()
    print(dict(outcomes))
    assert outcomes.keys() <= {"void-visible-devices", "pool-trespass", "complete"}, outcomes
    assert outcomes["pool-trespass"]


def claiming(**source: str) -> JSON:
    """Return a Pod for a named node that takes most of its CPUs."""
    obj = pod(nodeName="gpu", resourceClaims=[{"name": "gpu", **source}])
    resources = {"claims": [{"name": "gpu"}], "requests": {"cpu": "15"}}
    obj["spec"]["containers"][0]["resources"] = resources
    return obj


@CLAIMS
def test_a_pod_of_a_named_node_needs_devices_of_its_claim_there(
    control_plane: ControlPlane, server: Server, namespace: str
) -> None:
    path, claims = f"/api/v1/namespaces/{namespace}/pods", f"{DRA}/namespaces/{namespace}"
    api = control_plane.api
    known = 'gpufence_cluster_objects{resource="nodes"}'
    with control_plane.nodes(GPU_NODE):
        until(lambda: server.metric(known) == 1, "the node to be known")
        api.request(
            "POST", f"{claims}/resourceclaimtemplates", claim_template("devices", "gpu.nvidia.com")
        )
        claim = {
            "metadata": {"name": "one"},
            "spec": claim_template("devices", "gpu.nvidia.com")["spec"]["spec"],
        }
        api.request("POST", f"{claims}/resourceclaims", claim)
        by_template = claiming(resourceClaimTemplateName="devices")
        by_name = claiming(resourceClaimName="one")
        for obj in (by_template, by_name):
            assert "- missing-device: spec.nodeName: " in api.refusal(path, obj)
            del obj["spec"]["nodeName"]
            assert api.refusal(path, obj) == "", "the advice"
        with (
            driver_devices(control_plane, "gpu"),
            device_class(control_plane, selectors=[SELECTOR]),
        ):
            api.request("POST", path, {**by_name, "metadata": {"name": "scheduled"}})
            assert control_plane.bound_to(namespace, "scheduled") == "gpu"
            by_name["spec"]["nodeName"] = "gpu"
            by_name["spec"]["containers"][0]["resources"].pop("requests")
            assert api.refusal(path, by_name) == "", "the claim has a device on the node"
    until(lambda: server.metric(known) == 0, "the node to be gone")


# Ephemeral containers.

REMOVES_THE_REQUEST = [{"name": "main", "resources": {"$patch": "replace"}}]
SENT: dict[str, JSON] = {
    "a deletion": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    "no request": {"spec": {"containers": REMOVES_THE_REQUEST}},
    "the request of another vendor": {
        "spec": {
            "containers": [
                {"name": "main", "resources": {"$patch": "replace", "limits": {"amd.com/gpu": 1}}}
            ]
        }
    },
    "a name of a node": {"spec": {"nodeName": "gpu"}},
    "nothing else": {},
}


def test_an_ephemeral_container_gets_what_the_stored_pod_decides(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.api.request("POST", path, pod({GPU: "1"}, "train"))

    def is_hardened(sent: str) -> None:
        spec = {
            **SENT[sent].get("spec", {}),
            "ephemeralContainers": [{"name": "look", "image": "cuda"}],
        }
        debugged = control_plane.api.request(
            "PATCH",
            f"{path}/train/ephemeralcontainers?dryRun=All",
            {**SENT[sent], "spec": spec},
            "application/strategic-merge-patch+json",
        )
        [container] = debugged["spec"]["ephemeralContainers"]
        # Made from a CUDA image it would see all GPUs of the node, and its Pod's are not mounted.
        assert container["env"] == [VOID]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }

    each(SENT, is_hardened)


@CLAIMS
def test_an_ephemeral_container_of_a_pod_with_claims_gets_what_the_stored_pod_decides(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    templates = f"{DRA}/namespaces/{namespace}/resourceclaimtemplates"
    control_plane.api.request("POST", templates, claim_template("devices", "gpu.nvidia.com"))
    obj = hardened()
    obj["metadata"] = {"name": "train"}
    control_plane.api.request("POST", path, obj)
    patch = [
        {"op": "remove", "path": "/spec/resourceClaims"},
        {"op": "remove", "path": "/spec/containers/0/resources"},
        add("/spec/ephemeralContainers", [{"name": "look", "image": "cuda"}]),
    ]
    debugged = control_plane.api.request(
        "PATCH", f"{path}/train/ephemeralcontainers", patch, "application/json-patch+json"
    )
    [container] = debugged["spec"]["ephemeralContainers"]
    assert container["env"] == [VOID]

"""Decisions that need to know the cluster: its nodes, claims, classes and namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, device_class
from controlplane.fence import following
from controlplane.gpufence import Server
from controlplane.objects import TOLERATION, claim_template, node, pod, taint
from controlplane.poll import until
from controlplane.versions import CLAIMS, EXTENDED_RESOURCES
from specs import JSON, default_spec

pytestmark = [pytest.mark.usefixtures("server")]

RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
GPU = "nvidia.com/gpu"
PRESENT = "nvidia.com/gpu.present"
# Two more pools: one with a runtime class, one that is for namespaces with a label only.
POOLS = [
    {
        "name": "kata",
        "resources": ["example.com/kata-gpu"],
        "nodeSelector": {"example.com/kata-gpu": "true"},
        "runtimeClass": "kata-gpu",
    },
    {
        "name": "lab",
        "resources": ["example.com/lab-gpu"],
        "nodeSelector": {"example.com/lab-gpu": "true"},
        "allowedNamespaces": {"matchLabels": {"team": "lab"}, "unknown": "deny"},
    },
]


def spec() -> JSON:
    changed = default_spec()
    changed["pools"] += POOLS
    return changed


@pytest.fixture(scope="module")
def server(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A registered webhook that follows the cluster, with the rights that it says it needs."""
    directory = tmp_path_factory.mktemp("cluster-facts")
    with following(control_plane, directory, spec()) as running:
        yield running


def known_nodes(server: Server) -> float:
    return server.metric('gpufence_cluster_objects{resource="nodes"}')


def create(cluster: ControlPlane, namespace: str, obj: JSON, *, dry: bool = True) -> JSON:
    query = "?dryRun=All" if dry else ""
    return cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods{query}", obj)


def refusal(cluster: ControlPlane, namespace: str, obj: JSON) -> str:
    """Return why a Pod is denied, "" if it is allowed."""
    return cluster.api.refusal(f"/api/v1/namespaces/{namespace}/pods", obj)


def is_gpu_pod(created: JSON) -> bool:
    """Return whether a Pod has got all that a GPU Pod of the NVIDIA pool gets."""
    spec = created["spec"]
    # A node of the pool can have the label of the pool that is reserved, too.
    lab = {"key": "example.com/lab-gpu", "operator": "NotIn", "values": ["true"]}
    own = {"key": PRESENT, "operator": "In", "values": ["true"]}
    term = {"matchExpressions": [own, lab]}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    hardened = spec["securityContext"].get("runAsNonRoot") is True
    placed = TOLERATION in (spec.get("tolerations") or [])
    assert placed == hardened == (required.get("nodeSelectorTerms") == [term])
    return placed


# Nodes.


def test_a_gpu_pod_runs_on_a_node_with_the_labels_of_another_cluster(
    control_plane: ControlPlane, server: Server, namespace: str
) -> None:
    labels = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    gke = node("gke", labels=labels, taints=[taint(GPU, "present")], resources={GPU: "8"})
    with control_plane.nodes(gke):
        until(lambda: known_nodes(server) == 1, "gpufence to know of the node")
        created = create(control_plane, namespace, pod({GPU: 1}), dry=False)
        assert TOLERATION in created["spec"]["tolerations"]
        assert "affinity" not in created["spec"]
        assert control_plane.bound_to(namespace, "pod") == "gke"
    until(lambda: known_nodes(server) == 0, "gpufence to know that it is gone")


# Claims.


def create_claim(cluster: ControlPlane, namespace: str, name: str) -> None:
    spec = claim_template(name, "gpu.nvidia.com")["spec"]["spec"]
    obj = {"metadata": {"name": name}, "spec": spec}
    cluster.api.request("POST", f"{DRA}/namespaces/{namespace}/resourceclaims", obj)


def claiming(entry: JSON, **spec: Any) -> JSON:
    obj = pod(resourceClaims=[{"name": "gpu", **entry}], **spec)
    obj["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return obj


@EXTENDED_RESOURCES
def test_a_device_class_has_an_explicit_and_an_implicit_extended_resource(
    control_plane: ControlPlane, server: Server, namespace: str
) -> None:
    explicit, implicit = "example.com/any-gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    assert not is_gpu_pod(create(control_plane, namespace, pod({explicit: 1})))
    assert is_gpu_pod(create(control_plane, namespace, pod({implicit: 1})))

    def places() -> bool | None:
        try:
            return is_gpu_pod(create(control_plane, namespace, pod({explicit: 1})))
        except ApiError:
            # The class became known, or unknown, between the mutation and the validation.
            return None

    with device_class(control_plane, extendedResourceName=explicit):
        until(lambda: places() is True, "the class to be known")
    until(lambda: places() is False, "the class to be gone")
    assert server.metric('gpufence_cluster_objects{resource="deviceclasses"}') == 0


def test_a_limit_with_a_request_of_0_is_not_a_gpu_request(
    control_plane: ControlPlane, namespace: str
) -> None:
    implicit = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    obj = pod({implicit: "1"})
    obj["spec"]["containers"][0]["resources"]["requests"] = {implicit: "0"}
    created = create(control_plane, namespace, obj)
    assert created["spec"]["containers"][0]["resources"]["requests"] == {implicit: "0"}
    assert not is_gpu_pod(created), "the API server takes the two for different"
    obj["spec"]["tolerations"] = [TOLERATION]
    assert "pool-trespass" in refusal(control_plane, namespace, obj)


@CLAIMS
@pytest.mark.parametrize(
    "change",
    [{"tolerations": [TOLERATION]}, {"schedulingGates": None}],
    ids=["toleration added", "scheduling gates removed"],
)
def test_a_pod_created_before_its_claim_is_checked_when_schedulable(
    control_plane: ControlPlane, namespace: str, change: JSON
) -> None:
    gates = [{"name": "example.com/wait"}]
    obj = claiming({"resourceClaimName": "late"}, hostPID=True, schedulingGates=gates)
    create(control_plane, namespace, obj, dry=False)
    create_claim(control_plane, namespace, "late")
    path = f"/api/v1/namespaces/{namespace}/pods/pod?dryRun=All"
    if "tolerations" in change:
        # What an API server adds by itself is there already, and must stay.
        held = control_plane.api.request("GET", path)["spec"]["tolerations"]
        change = {"tolerations": [*held, *change["tolerations"]]}
    with pytest.raises(ApiError, match="unrestricted-gpu-pod"):
        control_plane.api.request("PATCH", path, {"spec": change}, "application/merge-patch+json")
    labelled = {"metadata": {"labels": {"a": "b"}}}
    control_plane.api.request("PATCH", path, labelled, "application/merge-patch+json")


# Runtime classes and namespaces.


def test_the_runtime_class_of_a_pool_is_set_only_if_it_exists(
    control_plane: ControlPlane, namespace: str
) -> None:
    wanting = pod({"example.com/kata-gpu": 1})
    assert "runtimeClassName" not in create(control_plane, namespace, wanting)["spec"]
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    runtime_class = {
        "metadata": {"name": "kata-gpu"},
        "handler": "kata",
        "overhead": overhead,
        "scheduling": {"nodeSelector": {"example.com/kata": "true"}},
    }
    control_plane.api.request("POST", RUNTIME_CLASSES, runtime_class)
    try:

        def created() -> JSON:
            spec: JSON = create(control_plane, namespace, wanting)["spec"]
            return spec

        until(lambda: "runtimeClassName" in created(), "the class to be known")
        spec = created()
        assert spec["runtimeClassName"] == "kata-gpu"
        assert spec["overhead"] == overhead["podFixed"]
        assert spec["nodeSelector"] == {"example.com/kata": "true"}
    finally:
        control_plane.api.request("DELETE", f"{RUNTIME_CLASSES}/kata-gpu")

    def is_without() -> bool:
        try:
            return "runtimeClassName" not in created()
        except ApiError as error:
            # The API server may hear of it before gpufence does.
            if 'RuntimeClass "kata-gpu" not found' not in str(error):
                raise
            return False

    until(is_without, "the class to be gone")


def test_a_restricted_pool_admits_pods_only_in_labeled_namespaces(
    control_plane: ControlPlane, namespace: str
) -> None:
    wanting = pod({"example.com/lab-gpu": 1})
    assert "is reserved for namespaces with the labels team=lab" in refusal(
        control_plane, namespace, wanting
    )
    of_lab = control_plane.create_namespace("lab-", {"team": "lab"})
    until(
        lambda: not refusal(control_plane, of_lab, wanting),
        "the namespace to be known",
    )

"""Generated ResourceSlices: the scheduler places a Pod exactly where gpufence counts a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, device_class
from controlplane.objects import node, pod
from controlplane.poll import until
from controlplane.versions import EXTENDED_RESOURCES
from laws.profile import live_law
from laws.test_published_device_laws import NODES, selectors, slices
from policies.kubernetes.claims import implicit_resource
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState

pytestmark = [EXTENDED_RESOURCES, pytest.mark.timeout(3600)]

JSON = dict[str, Any]

API = {"apiVersion": "resource.k8s.io/v1"}
SLICES = f"{DRA}/resourceslices"
_numbers = count()


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace, in a cluster with the nodes that the slices are about."""
    own = [node(name, labels={**labels, "own": name}) for name, labels in NODES.items()]
    with control_plane.nodes(*own):
        name = control_plane.create_namespace("generated-")
        yield name
        control_plane.delete_workloads(name)


@live_law
@given(selectors(may_fail=False), slices(), st.sampled_from(sorted(NODES)))
def test_the_scheduler_places_a_pod_where_gpufence_counts_a_device(
    control_plane: ControlPlane, namespace: str, expression: str, given: list[JSON], name: str
) -> None:
    api, number = control_plane.api, next(_numbers)
    own = f"class-{number}"
    selector = [{"cel": {"expression": expression}}]
    with ExitStack() as stack:
        stack.enter_context(device_class(control_plane, own, selectors=selector))
        for obj in given:
            # Claims of earlier examples may still hold devices of their pools.
            spec, own_name = obj["spec"], f"{obj['metadata']['name']}-{number}"
            named = {**spec["pool"], "name": f"{spec['pool']['name']}-{number}"}
            made = {"metadata": {"name": own_name}, "spec": {**spec, "pool": named}}
            try:
                api.request("POST", SLICES, made)
            except ApiError as error:
                if error.status != 422:
                    raise
                reject()
            stack.callback(api.request, "DELETE", f"{SLICES}/{own_name}")
        offered = offers(control_plane, own, name)
        event(f"{'no' if not offered else 'a'} device")
        spec = pod({implicit_resource(own): 1}, nodeSelector={"own": name})["spec"]
        pods = f"/api/v1/namespaces/{namespace}/pods"
        api.request("POST", pods, {"metadata": {"name": own}, "spec": spec})
        stack.callback(api.request, "DELETE", f"{pods}/{own}")
        wanted = f"the scheduler to {'place the Pod' if offered else 'find no device'}"
        until(lambda: is_bound(api.request("GET", f"{pods}/{own}")) is bool(offered), wanted)


def offers(cluster: ControlPlane, class_name: str, node_name: str) -> int:
    """Return how many devices of the class gpufence counts on the node."""
    state = ClusterState(None)
    for kind, path in (
        ("DeviceClass", f"{DRA}/deviceclasses"),
        ("ResourceSlice", SLICES),
    ):
        for item in cluster.api.request("GET", path)["items"]:
            put(state, {**API, "kind": kind, **item})
    for item in cluster.api.request("GET", "/api/v1/nodes")["items"]:
        put(state, {"apiVersion": "v1", "kind": "Node", **item})
    found = state.nodes.index.get(node_name)
    assert found is not None
    return found.published.get(implicit_resource(class_name), 0)


def is_bound(obj: JSON) -> bool | None:
    """Return whether a Pod has a node; ``None`` while the scheduler has not decided."""
    if obj["spec"].get("nodeName"):
        return True
    conditions = obj["status"].get("conditions") or ()
    return False if any(each["reason"] == "Unschedulable" for each in conditions) else None

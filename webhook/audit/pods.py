"""Running Pods: the decision on each, and the devices that it holds."""

from __future__ import annotations

from dataclasses import dataclass

from policies.decision import Decision
from policies.engine import decide
from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.kubernetes.decoding import MalformedObjectError
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.workload import Workload as WorkloadObject
from policies.policy import Policy
from policies.reach import DAEMON_SET_CONTROLLER, MIRROR_ANNOTATION
from policies.requests import device_peaks
from webhook.audit.inventory import Inventory, Workload, workload
from webhook.audit.kinds import POD


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A Pod that has not ended. ``node`` is empty for a Pod that is not scheduled.

    ``devices`` counts the reserved devices by extended resource. ``is_agent`` is true for node
    agents: Pods of a DaemonSet, and static Pods.
    """

    workload: Workload
    decision: Decision
    node: str
    devices: dict[str, int]
    is_agent: bool


def running_pod(obj: JSONObject, inventory: Inventory, policy: Policy) -> RunningPod | None:
    """Decide on a Pod as if it were created today; return None if it is malformed."""
    node = obj["spec"].get("nodeName") or ""
    written = workload(_as_written(obj), POD)
    owner = inventory.owners.direct(written.owned)
    username = ""
    if owner is not None and owner.key == ("apps", "DaemonSet"):
        username = DAEMON_SET_CONTROLLER
    elif _is_mirror(written, node, inventory):
        username = f"system:node:{node}"
    try:
        namespace = written.owned.namespace
        decision = decide(
            written.obj,
            policy,
            inventory.request_in(namespace, username),
            inventory.facts_in(namespace),
            excluded_namespaces=ALWAYS_EXCLUDED,
        )
    except MalformedObjectError as error:
        inventory.not_judged(written, error)
        return None
    inventory.take_excepted(written, decision)
    [pod] = WorkloadObject(written.obj).pods()
    return RunningPod(written, decision, node, device_peaks(pod, policy), bool(username))


def _as_written(obj: JSONObject) -> JSONObject:
    """Return the Pod without ``nodeName``, which the scheduler sets."""
    spec = {key: value for key, value in obj["spec"].items() if key != "nodeName"}
    return {key: {**spec} if key == "spec" else obj[key] for key in obj if key != "status"}


def _is_mirror(pod: Workload, node: str, inventory: Inventory) -> bool:
    """Return whether it is a mirror Pod: it has the annotation, and its node is the owner.

    Source: ``NewBasicMirrorClient`` in ``k8s.io/kubernetes/pkg/kubelet/pod/mirror_client.go``.
    """
    owner = pod.owned.owner
    annotations = pod.obj["metadata"].get("annotations") or {}
    return (
        MIRROR_ANNOTATION in annotations
        and owner is not None
        and owner.kind == "Node"
        and bool(node)
        and inventory.node_uids.get(node) == owner.uid
    )

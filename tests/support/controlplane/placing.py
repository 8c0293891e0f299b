"""Creates Pods, and waits for the real scheduler's decision about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from specs import JSON


@dataclass
class Outcome:
    """The outcome for Pods, by their number."""

    denials: dict[int, str] = field(default_factory=dict)
    """The messages of the denied Pods."""
    nodes: dict[int, str] = field(default_factory=dict)
    """The node of each created Pod, "" where the scheduler found none."""

    @property
    def bound(self) -> dict[int, str]:
        return {number: node for number, node in self.nodes.items() if node}

    @property
    def pending(self) -> set[int]:
        return self.nodes.keys() - self.bound.keys()

    def __str__(self) -> str:
        return (
            f"{len(self.denials)} denied, {len(self.bound)} bound, {len(self.pending)} pending, "
            f"on {sorted(set(self.bound.values()))}"
        )


def place(
    cluster: ControlPlane, pods: Sequence[tuple[str, JSON] | tuple[str, JSON, JSON]]
) -> Outcome:
    """Create Pods, given by namespace, spec and labels; delete them once all are decided about.

    A Pod that the API server finds invalid has no outcome.
    """
    outcome = Outcome()
    for number, (namespace, spec, *labels) in enumerate(pods):
        metadata = {"name": f"pod-{number}", "labels": labels[0] if labels else {}}
        pod = {"metadata": metadata, "spec": spec}
        try:
            cluster.api.request("POST", _pods(namespace), pod)
            outcome.nodes[number] = ""
        except ApiError as error:
            if 'gpufence.dev" denied the request' in str(error):
                outcome.denials[number] = str(error)
            elif error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise AssertionError(f"{error}, of {spec}") from error
    namespaces = {namespace for namespace, *_ in pods}

    def decided() -> bool:
        for namespace in namespaces:
            for pod in cluster.api.request("GET", _pods(namespace))["items"]:
                node = _decision(pod)
                if node is None:
                    return False
                outcome.nodes[int(pod["metadata"]["name"].removeprefix("pod-"))] = node
        return True

    what = f"the scheduler to decide about {len(outcome.nodes)} Pods"
    until(decided, what, within=120 + len(pods) / 4, every=0.5)
    for namespace in namespaces:
        cluster.api.request("DELETE", _pods(namespace))
    return outcome


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _decision(pod: JSON) -> str | None:
    """Return the node of a Pod, "" if there is none for it, or None if it is undecided."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    for condition in pod["status"].get("conditions") or ():
        if (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable"):
            return ""
    return None

"""A recording webhook, registered with a real API server as gpufence is."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy
from release.recorder import MARK, Recorder
from specs import JSON
from valid_strategies import pod, workload
from webhook.controller.text.objects import Registration, configurations

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GPU = {"limits": {"nvidia.com/gpu": "1"}}
MARKS = itertools.count()


class Registered:
    """A recording webhook that is registered for one policy.

    ``nodes`` are those that a replica knows, if it knows any.
    """

    def __init__(
        self, cluster: ControlPlane, recorder: Recorder, policy: Policy, nodes: NodeIndex | None
    ) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.policy = policy
        self.nodes = nodes

    def send(self, method: str, path: str, obj: JSON) -> tuple[str, JSON | None]:
        """Send an object (dry-run) under a new mark; return the mark, and what came of it.

        None where the API server itself finds the object invalid.
        """
        mark = f"object-{next(MARKS)}"
        annotations = {**obj["metadata"].get("annotations", {}), MARK: mark}
        metadata = {**obj["metadata"], "annotations": annotations}
        metadata.pop("resourceVersion", None)
        try:
            url = f"{path}?dryRun=All"
            return mark, self.cluster.api.request(method, url, {**obj, "metadata": metadata})
        except ApiError as error:
            if error.status != 422 or "webhook" in str(error):
                raise
            return mark, None

    def called_endpoints(self, mark: str) -> set[str]:
        return self.recorder.endpoints[mark]


@contextmanager
def registered(
    cluster: ControlPlane, recorder: Recorder, policy: Policy, nodes: NodeIndex | None = None
) -> Iterator[Registered]:
    """Register the webhook in the block."""
    bundle = base64.b64encode(recorder.authority).decode()
    registration = Registration(
        name="gpufence-recorder",
        url=recorder.url,
        ca_bundle=bundle,
        with_nodes=nodes is not None,
    )
    objects = configurations(policy, registration)
    hook = Registered(cluster, recorder, policy, nodes)
    paths = []
    pods = "/api/v1/namespaces/default/pods"
    gpu = pod({"containers": [{"name": "a", "image": "a", "resources": GPU}]})
    try:
        for configuration in objects:
            path = f"{ADMISSION}/{configuration['kind'].lower()}s"
            cluster.api.request("POST", path, configuration)
            paths.append(f"{path}/{configuration['metadata']['name']}")
        until(
            lambda: len(hook.called_endpoints(hook.send("POST", pods, gpu)[0])) == 2,
            "the API server to call both webhooks",
        )
        plain = workload("PodTemplate", "plain", gpu["spec"])
        templates = "/api/v1/namespaces/default/podtemplates"
        until(lambda: hook.called_endpoints(hook.send("POST", templates, plain)[0]), "all of them")
        yield hook
    finally:
        for path in paths:
            cluster.api.request("DELETE", path)
        # The next ones use the same name.
        until(
            lambda: not hook.called_endpoints(hook.send("POST", pods, gpu)[0]),
            "the API server to forget them",
        )

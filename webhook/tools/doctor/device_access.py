"""Evidence that containers see only the devices that they request.

It is for ``secure_accelerator_access`` of CNCF's Kubernetes AI Conformance, and needs Pods that
run. A GPU Pod has a container with a request and one without, as in the test of the program
(``test/ai_conformance_test.go`` of ``kubernetes-sigs/ai-conformance``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from policies.kubernetes.objects import JSONObject
from policies.policy import Policy, Pool
from webhook.kube.errors import ApiError
from webhook.kube.writer import KubeWriter
from webhook.tools.doctor import DoctorLine, fail, ok, skip
from webhook.tools.doctor.installation import Installation
from webhook.tools.doctor.trials import gpu_pod, labels_of, trial_pod, untried

REQUIREMENT = "secure_accelerator_access"
_REQUIREMENT_TEXT = (
    "Ensure that access to accelerators from within containers is properly isolated and mediated "
    "by the Kubernetes resource management framework (device plugin or DRA) and container runtime, "
    "preventing unauthorized access or interference between workloads."
)
"""The program accepts no other. Source: ``docs/AIConformance-1.36.yaml`` of
``cncf/k8s-ai-conformance``; it is the same since 1.33."""

_WITH, _WITHOUT = "with-request", "without-request"
_END = "end of devices"
_SECONDS = 120
"""How long a Pod may take until it runs. The doctor ends it after that."""
_COMMAND = (
    "for file in /dev/nvidia[0-9]* /dev/dri/renderD* /dev/accel/accel[0-9]* /dev/accel[0-9]* "
    f'/dev/neuron[0-9]*; do if [ -e "$file" ]; then echo "$file"; fi; done; echo {_END}; sleep 300'
)
_USER = 65532
_RUNTIME = "Check the container runtime and the device plugin of the node"


class Seen(NamedTuple):
    """The device files that the containers of a Pod see, and the Pod's node."""

    node: str
    with_request: tuple[str, ...]
    without_request: tuple[str, ...]


async def check(
    api: KubeWriter, installed: Installation, namespace: str, image: str | None
) -> AsyncIterator[DoctorLine]:
    """Run Pods with an image that has a shell, and yield whether they see only their devices.

    Without an image, each check is skipped.
    """
    policy = installed.policy
    if policy is None:
        return  # The trials report it.
    actions = policy.actions_in(namespace, await labels_of(api, namespace))
    if untried(policy, installed, namespace, actions):
        return
    cure = "Set --run-image to an image with a shell that the nodes can pull"
    if image is None:
        line = skip("it runs a Pod on a node", cure)
    else:
        line = await _run(api, [_runnable(trial_pod(namespace, "", {}), image)])
    yield line._replace(check="device access without a request")
    for pool in policy.pools:
        model = gpu_pod(policy, pool, namespace)
        if model is None:
            line = skip("the pool offers only DeviceClasses, and the Pods have no claim")
        elif image is None:
            line = skip("it runs two Pods, each with a GPU", cure)
        elif problem := _sharing(policy, pool, model):
            line = skip(problem)
        else:
            line = await _run(api, [_runnable(model, image)] * 2)
        yield line._replace(check=f"device access, pool {pool.name}")


def entry(lines: Sequence[DoctorLine], version: str, report: str) -> JSONObject:
    """Return the requirement as in the file ``PRODUCT.yaml`` of the program.

    ``lines`` are the checks, and ``version`` is that of Kubernetes, such as v1.36.3. ``report`` is
    the name of the file with the evidence.
    """
    states = {line.status for line in lines}
    status = "Partially Implemented" if states & {"skip", "unknown"} else "Implemented"
    requirement = {
        "id": REQUIREMENT,
        "description": _REQUIREMENT_TEXT,
        "level": "MUST",
        "status": "Not Implemented" if "fail" in states else status,
        "evidence": [report],
        "notes": "\n".join(f"{line.status}: {line.check}: {line.detail}" for line in lines),
    }
    minor = ".".join(version.split(".")[:2])
    return {"metadata": {"kubernetesVersion": minor}, "spec": {"security": [requirement]}}


def judge(pods: Sequence[Seen]) -> DoctorLine:
    """Return the line for the devices that a Pod without a request sees, or two Pods with one."""
    for pod in pods:
        if pod.without_request:
            files = ", ".join(pod.without_request)
            return fail(f"a container without a request sees {files}, {pod.node}", _RUNTIME)
        kinds = Counter(file.rstrip("0123456789") for file in pod.with_request)
        if any(count > 1 for count in kinds.values()):
            files = ", ".join(pod.with_request)
            return fail(f"a container with one device sees {files}, {pod.node}", _RUNTIME)
    shown = "; ".join(f"{', '.join(pod.with_request)} on {pod.node}" for pod in pods)
    if len(pods) == 1:
        return ok(f"a Pod without a request sees no device, on {pods[0].node}")
    if not all(pod.with_request for pod in pods):
        return skip(f"a Pod with a device sees no device file of a known kind: {shown}")
    one, two = pods
    if one.node == two.node and {*one.with_request} & {*two.with_request}:
        cure = f"If the node shares its devices, list the resource in sharedResources. {_RUNTIME}"
        return fail(f"two Pods with one device each see the same: {shown}", cure)
    detail = "two Pods with one device each see their own, and their other containers none"
    return ok(f"{detail}: {shown}")


def _sharing(policy: Policy, pool: Pool, pod: JSONObject) -> str:
    """Return why two Pods may see the same device; empty if they may not."""
    (resource,) = pod["spec"]["containers"][0]["resources"]["limits"]
    if resource in pool.shared_resources or not policy.counts(resource):
        return f"{resource} is a share of a device, so that two Pods may see the same device"
    return ""


def _runnable(pod: JSONObject, image: str) -> JSONObject:
    """Return a Pod that prints its device files, and ends soon if the doctor cannot delete it."""
    [main] = pod["spec"]["containers"]
    security = main["securityContext"] | {"runAsUser": _USER}
    more = {"image": image, "command": ["/bin/sh", "-c", _COMMAND], "securityContext": security}
    containers = [{**main, **more, "name": _WITHOUT, "resources": {}}]
    if main["resources"]:
        containers.append({**main, **more, "name": _WITH})
    spec = pod["spec"] | {
        "containers": containers,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": 600,
        "terminationGracePeriodSeconds": 1,
    }
    metadata = {"generateName": "gpufence-doctor-", "namespace": pod["metadata"]["namespace"]}
    return {**pod, "metadata": metadata, "spec": spec}


async def _run(api: KubeWriter, pods: Sequence[JSONObject]) -> DoctorLine:
    """Run the Pods at the same time, judge what they see, and delete them."""
    path = f"/api/v1/namespaces/{pods[0]['metadata']['namespace']}/pods"
    created: list[str] = []
    try:
        for pod in pods:
            made = await api.create(path, pod)
            created.append(f"{path}/{made['metadata']['name']}")
        return judge([await _seen(api, each) for each in created])
    except (ApiError, TimeoutError) as error:
        cure = "Set --try-in to a namespace in which Pods may run, and free a device for each Pod"
        return skip(f"the Pods do not run: {error}", cure)
    finally:
        for each in created:
            await api.delete(each)


async def _seen(api: KubeWriter, path: str) -> Seen:
    """Return what a Pod sees.

    Raises:
        ApiError: its logs cannot be read.
        TimeoutError: it does not run in time.
    """
    pod: JSONObject = {}
    for _ in range(_SECONDS):
        pod = await api.read(path) or {}
        names = [each["name"] for each in pod["spec"]["containers"]] if pod else []
        if _is_ready(pod):
            files = {name: await _printed(api, path, name) for name in names}
            if None not in files.values():
                with_request = tuple(files.get(_WITH) or ())
                return Seen(pod["spec"]["nodeName"], with_request, tuple(files[_WITHOUT] or ()))
        await asyncio.sleep(1)
    raise TimeoutError(f"after {_SECONDS} s, {_problem(pod)}")


def _is_ready(pod: JSONObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


async def _printed(api: KubeWriter, path: str, container: str) -> list[str] | None:
    """Return the lines that a container has printed; ``None`` until it has printed all."""
    body = await api.get(f"{path}/log", {"container": container}, seconds=10)
    lines = body.decode().splitlines()
    return lines[: lines.index(_END)] if _END in lines else None


def _problem(pod: JSONObject) -> str:
    """Return why a Pod is not ready, in the words of the scheduler and the kubelet."""
    status: JSONObject = pod.get("status") or {}
    waiting = [
        each["state"]["waiting"]
        for each in status.get("containerStatuses") or ()
        if "waiting" in (each.get("state") or {})
    ]
    states = waiting or [c for c in status.get("conditions") or () if c["status"] == "False"]
    reasons = dict.fromkeys(f"{each.get('reason')}: {each.get('message', '')}" for each in states)
    return "; ".join(reasons) or f"the phase is {status.get('phase')}"

"""Admission reviews as an API server sends them, for every test that talks to the webhook."""

from __future__ import annotations

import base64
import copy
import itertools
import json
from typing import Any

from policies.policy import Policy
from specs import JSON, default_spec, policy_of

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def default_policy(**rules: str) -> Policy:
    """Return the policy that ships with gpufence, with other actions for some of its rules."""
    spec = default_spec()
    spec["rules"] |= {rule.replace("_", "-"): action for rule, action in rules.items()}
    return policy_of(spec)


def plain_pod() -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]},
    }


def trespassing_pod() -> JSON:
    pod = plain_pod()
    pod["spec"]["tolerations"] = [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    return pod


def gpu_pod() -> JSON:
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    container = {"name": "train", "image": "train:1", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"containers": [container]},
    }


def deployment(pod: JSON) -> JSON:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"metadata": {}, "spec": pod["spec"]}},
    }


def pytorch_job(pod: JSON) -> JSON:
    template = {"metadata": {}, "spec": pod["spec"]}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "shop"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
    }


def review(obj: JSON | None, **fields: Any) -> JSON:
    """Return a review for the creation of ``obj``; ``fields`` replace or add request fields."""
    described = obj or plain_pod()
    metadata = described.get("metadata")
    names: JSON = metadata if isinstance(metadata, dict) else {}
    group, _, version = str(described["apiVersion"]).rpartition("/")
    kind = described["kind"]
    request = {
        "uid": UID,
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
        "name": names.get("name", ""),
        "namespace": names.get("namespace", "default"),
        "operation": "CREATE",
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": request | fields,
    }


def encode(value: Any) -> bytes:
    """Return the JSON as Go writes it: without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def with_value(value: JSON, path: str, new: Any) -> JSON:
    """Return a copy with ``new`` at a dotted path; missing mappings and lists are created."""
    result = copy.deepcopy(value)
    steps = [int(step) if step.isdigit() else step for step in path.split(".")]
    node: Any = result
    for step, following in itertools.pairwise(steps):
        if isinstance(step, str) and not node.get(step):
            node[step] = [{}] if isinstance(following, int) else {}
        node = node[step]
    node[steps[-1]] = new
    return result


def without(value: JSON, path: str) -> JSON:
    """Return a copy without the field at a dotted path."""
    result = copy.deepcopy(value)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    node: Any = result
    for step in parents:
        node = node[step]
    del node[last]
    return result


def patch_of(answer: JSON) -> list[JSON]:
    """Return the operations in an answer."""
    operations: list[JSON] = json.loads(base64.b64decode(answer["response"]["patch"]))
    return operations

"""Searches for the review that takes the longest: `python -m bench.worst [SECONDS] [SEED]`.

A review occupies the event loop of a replica, and any Pod author can choose its object. The search
starts from random objects, changes one property at a time, and continues with what takes longer.
It ends with an error if a review takes longer than `LONGEST` of CPU time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any

import msgspec

from policies.document import parse_policy
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from reviewing import default_document
from webhook.admission.handler import Admission, Endpoint
from webhook.metrics.replica import Metrics

JSON = dict[str, Any]
Shape = Mapping[str, Any]

LONGEST = 0.05
NODES = 15_000
POOLS = 100
MOST_BYTES = 3 * 2**20
"""The largest object that an API server accepts (``k8s.io/apiserver``, ``MaxRequestBodyBytes``)."""

_ZONE = "topology.kubernetes.io/zone"
_NUMBERS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 499, 1000)
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "policy": ("one pool", "same resource", "own resources", "overlapping labels"),
    "kind": ("Pod", "Deployment", "CronJob", "DaemonSet", "Job", "Workflow", "List"),
    "endpoint": ("/mutate", "/validate"),
    "operation": ("CREATE", "UPDATE"),
    "old": ("the same", "without tolerations"),
    "templates": (1, 2, 5, 20, 100, 499),
    "other values": (0, 100, 1000, 15_000, 100_000),
    "containers": _NUMBERS,
    "init containers": _NUMBERS,
    "ephemeral containers": _NUMBERS,
    "devices of a container": (0, 1, 2, 10, 50, 100),
    "device": ("nvidia.com/gpu", "nvidia.com/mig-{n}", "vendor-{n}.example/gpu", "other.com/{n}"),
    "both sides": (False, True),
    "env": (0, 1, 5, 50, 1000),
    "env name": ("NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION", "LD_PRELOAD", "VALUE_{n}"),
    "mounts": (0, 1, 5, 50, 1000),
    "capabilities": (0, 1, 20, 500),
    "privileged": (False, True),
    "volumes": _NUMBERS,
    "volume": ("emptyDir", "hostPath"),
    "tolerations": _NUMBERS,
    "toleration": (
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "vendor-{n}.example/gpu", "operator": "Exists"},
        {"key": "other-{n}", "operator": "Equal", "value": "x"},
    ),
    "terms": (0, 1, 2, 5, 20, 100, 200),
    "requirements of a term": (1, 2, 5, 20, 100, 200),
    "values": (0, 1, 2, 10, 20, 25, 50, 100, 1000, 5000),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "second operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "key": (
        *(_ZONE, "serial", "kubernetes.io/hostname", "nvidia.com/gpu.product", "other-{n}"),
        *("vendor-{n}.example/present", "nvidia.com/gpu.present", "pool"),
    ),
    "second key": (_ZONE, "serial", "kubernetes.io/hostname", "pool", "nvidia.com/gpu.product"),
    "fields of a term": (0, 1, 5),
    "value": ("{n}", "zone-{n}", "pool-{n}", "node-{n}", "true"),
    "selector labels": (0, 1, 100, 1000, 10_000),
    "node name": ("", "node-1", "node-14999", "unknown"),
    "claims": (0, 1, 5, 32, 1000),
    "claims of a container": (0, 1, 32, 1000),
    "annotations": (0, 10, 1000),
    "runtime class": ("", "nvidia"),
    "host namespaces": (False, True),
}


def policy(name: str) -> Policy:
    """Return a policy with one pool, or with 100 that differ in one way."""
    document = default_document()
    if name != "one pool":
        pools = [_pool(name, n) for n in range(POOLS)]
        if name == "own resources":
            pools[0] = document["pools"][0]
        document["pools"] = pools
    return parse_policy(document)


def _pool(kind: str, n: int) -> JSON:
    resource = f"vendor-{n}.example/gpu" if kind == "own resources" else "nvidia.com/gpu"
    selectors = {
        "same resource": {"nvidia.com/gpu.product": f"pool-{n}"},
        "own resources": {f"vendor-{n}.example/present": "true"},
        "overlapping labels": {"pool": f"pool-{n}", f"vendor-{n}.example/present": "true"},
    }
    return {
        "name": f"pool-{n}",
        "resources": [resource, *(["nvidia.com/mig-*"] if kind == "overlapping labels" else [])],
        "deviceClasses": ["gpu.nvidia.com"],
        "taints": [{"key": resource, "effect": "NoSchedule"}],
        "nodeSelector": selectors[kind],
        **({} if kind == "same resource" else {"largestRequest": 4}),
        "allowedNamespaces": {"names": ["team", "default"]},
    }


@cache
def nodes() -> NodeIndex:
    """Return nodes; every second one belongs to a pool of each policy."""
    return NodeIndex(_node(n) for n in range(NODES))


def _node(n: int) -> Node:
    labels = {_ZONE: f"zone-{n % 3}", "serial": str(n), "kubernetes.io/hostname": f"node-{n}"}
    labels |= {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": f"type-{n % 50}"}
    if n % 2:
        return Node(f"node-{n}", labels)
    pool = n // 2 % POOLS
    labels |= {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": f"pool-{pool}"}
    labels |= {"pool": f"pool-{pool}", f"vendor-{pool}.example/present": "true"}
    taints = (Taint("nvidia.com/gpu"), Taint(f"vendor-{pool}.example/gpu"))
    return Node(f"node-{n}", labels, taints, {"nvidia.com/gpu": 2, f"vendor-{pool}.example/gpu": 8})


def _node_claim(n: int) -> NodeTemplate:
    known = _node(n)
    return NodeTemplate(
        f"NodeClaim {n}", known.labels, known.taints, chooses=True, allocatable=known.allocatable
    )


class _Cluster:
    """The facts of a cluster in which every claim exists."""

    def __init__(self) -> None:
        claim = Claim((frozenset(("gpu.nvidia.com",)), frozenset(("mig.nvidia.com", "x"))))
        claims = {("default", f"claim-{n}"): claim for n in range(32)}
        self._facts = Facts(
            nodes=nodes(),
            templates=tuple(_node_claim(n) for n in range(NODES // 3)),
            claims=claims,
            runtime_classes=frozenset(("nvidia",)),
            namespace_labels={},
        )

    async def facts_for(self, _request: Request, _obj: Workload, _seconds: float) -> Facts:
        return self._facts


def _listed(pattern: Any, count: int) -> list[Any]:
    text = json.dumps(pattern)
    return [json.loads(text.replace("{n}", str(n))) for n in range(count)]


def _container(shape: Shape, name: str) -> JSON:
    devices = dict.fromkeys(_listed(shape["device"], shape["devices of a container"]), "1")
    resources: JSON = {"limits": devices}
    if shape["both sides"]:
        resources["requests"] = devices
    if shape["claims of a container"]:
        names = _listed("entry-{n}", shape["claims of a container"])
        resources["claims"] = [{"name": name} for name in names]
    names = _listed(shape["env name"], shape["env"])
    return {
        "name": name,
        "image": "a",
        "resources": resources,
        "env": [{"name": name, "value": "all"} for name in names],
        "volumeMounts": [
            {"name": f"v{n}", "mountPath": f"/var/run/{n}"} for n in range(shape["mounts"])
        ],
        "securityContext": {
            "privileged": shape["privileged"],
            "capabilities": {"add": _listed("CAP_{n}", shape["capabilities"])},
        },
    }


def _requirement(shape: Shape, n: int, which: str) -> JSON:
    operator = shape[f"{which}operator"]
    values = _listed(shape["value"], shape["values"])
    if operator in ("Exists", "DoesNotExist"):
        values = []
    elif operator in ("Gt", "Lt"):
        values = [str(n)]
    return {
        "key": shape[f"{which}key"].replace("{n}", str(n)), "operator": operator, "values": values,
    }  # fmt: skip


def _spec(shape: Shape) -> JSON:
    spec: JSON = {
        kind: [_container(shape, f"{kind[0]}{n}") for n in range(shape[number])]
        for kind, number in (
            ("containers", "containers"),
            ("initContainers", "init containers"),
            ("ephemeralContainers", "ephemeral containers"),
        )
    }
    spec["containers"] = spec["containers"] or [_container(shape, "main")]
    spec["tolerations"] = _listed(shape["toleration"], shape["tolerations"])
    source = {"hostPath": {"path": "/dev"}} if shape["volume"] == "hostPath" else {"emptyDir": {}}
    spec["volumes"] = [{"name": f"v{n}", **source} for n in range(shape["volumes"])]
    spec["nodeSelector"] = dict.fromkeys(_listed("label-{n}", shape["selector labels"]), "x")
    spec["resourceClaims"] = [
        {"name": f"entry-{n}", "resourceClaimName": f"claim-{n % 32}"}
        for n in range(shape["claims"])
    ]
    if shape["terms"]:
        each = shape["requirements of a term"]
        terms = [
            {
                "matchExpressions": [
                    _requirement(shape, t * each + n, "second " if n % 2 else "")
                    for n in range(each)
                ],
                "matchFields": [
                    {"key": "metadata.name", "operator": "NotIn", "values": [f"node-{t}-{n}"]}
                    for n in range(shape["fields of a term"])
                ],
            }
            for t in range(shape["terms"])
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    spec["nodeName"] = shape["node name"]
    if shape["runtime class"]:
        spec["runtimeClassName"] = shape["runtime class"]
    spec |= dict.fromkeys(("hostPID", "hostNetwork", "hostIPC"), shape["host namespaces"])
    return spec


def _object(shape: Shape) -> JSON:
    annotations = dict.fromkeys(_listed("example.com/a-{n}", shape["annotations"]), "1")
    metadata = {"name": "p", "annotations": annotations}
    spec, kind, count = _spec(shape), shape["kind"], shape["templates"]
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    version = "apps/v1"
    content: JSON = {"template": template}
    if kind == "CronJob":
        version, content = "batch/v1", {"jobTemplate": {"spec": content}}
    elif kind == "Job":
        tasks = [{"name": f"t{n}", "template": template} for n in range(count)]
        version, content = "batch.volcano.sh/v1alpha1", {"tasks": tasks}
    elif kind == "Workflow":
        steps = [{"name": f"s{n}", "container": spec["containers"][0]} for n in range(count)]
        inherited = {key: spec[key] for key in ("tolerations", "nodeSelector", "volumes")}
        version, content = "argoproj.io/v1alpha1", {"templates": steps, **inherited}
        content["affinity"] = spec.get("affinity")
    elif kind == "List":
        version, content = "example.com/v1", {"items": [{"template": template}] * count}
    if version not in ("apps/v1", "batch/v1"):
        content["other"] = [{"a": {"b": []}} for _ in range(shape["other values"] // 3)]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": content}


def review_of(shape: Shape) -> bytes | None:
    """Return the review for an object of this shape; `None` if no API server accepts the object."""
    size = max(1, shape["containers"] + shape["init containers"] + shape["ephemeral containers"])
    values = shape["terms"] * shape["requirements of a term"] * max(1, shape["values"])
    parts = shape["env"] + shape["mounts"] + shape["capabilities"] + shape["claims of a container"]
    count = shape["templates"] if shape["kind"] in ("Job", "List", "Workflow") else 1
    if count * (size * (1 + parts + 2 * shape["devices of a container"]) + values) > 300_000:
        return None
    obj = _object(shape)
    body = msgspec.json.encode(obj)
    if len(body) > MOST_BYTES:
        return None
    group, _, version = obj["apiVersion"].rpartition("/")
    old = None
    if shape["operation"] == "UPDATE":
        old = (
            json.loads(body) if shape["old"] == "the same" else _object({**shape, "tolerations": 0})
        )
    return msgspec.json.encode(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": {"group": group, "version": version, "kind": obj["kind"]},
                "operation": shape["operation"],
                "userInfo": {"username": "alice"},
                "namespace": "default",
                "object": msgspec.Raw(body),
                "oldObject": old,
            },
        }
    )


class Search:
    """A search from one random shape at a time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        policies = {name: policy(name) for name in _CHOICES["policy"]}
        self._admissions = {
            name: Admission(each, Metrics(each, name), lambda: date(2026, 1, 1), _Cluster())
            for name, each in policies.items()
        }
        self._runner = asyncio.Runner()

    def seconds(self, shape: Shape) -> float:
        """Return the CPU seconds of the review: the least of three runs."""
        body = review_of(shape)
        if body is None:
            return 0.0
        admission, endpoint = self._admissions[shape["policy"]], shape["endpoint"]
        least = 1e9
        for _ in range(3):
            least = min(least, self._runner.run(_timed(admission, endpoint, body)))
            if least < LONGEST / 10:
                break
        return least

    def worst(self, steps: int) -> tuple[float, Shape]:
        """Return the slowest shape that the search reaches from a random one."""
        shape = {key: self._random.choice(choices[:4]) for key, choices in _CHOICES.items()}
        shape["kind"] = self._random.choice(_CHOICES["kind"])
        longest = self.seconds(shape)
        for _ in range(steps):
            changed = dict(shape)
            for key in self._random.sample(sorted(_CHOICES), self._random.choice((1, 1, 2, 3))):
                changed[key] = self._random.choice(_CHOICES[key])
            seconds = self.seconds(changed)
            if seconds >= longest:
                shape, longest = changed, seconds
        return longest, shape


async def _timed(admission: Admission, endpoint: Endpoint, body: bytes) -> float:
    start = time.process_time()
    await admission.answer(endpoint, body, 1.0)
    return time.process_time() - start


def main() -> None:
    duration, seed = (float(sys.argv[1]) if sys.argv[1:] else 60.0), int(*sys.argv[2:3] or ["1"])
    search, end = Search(seed), time.monotonic() + duration
    found: list[tuple[float, Shape]] = []
    while time.monotonic() < end:
        found.append(search.worst(150))
        seconds, shape = found[-1]
        told = {key: value for key, value in shape.items() if value}
        print(f"{seconds * 1000:.0f} ms: {told}", flush=True)
    longest = max(seconds for seconds, _ in found)
    print(f"{len(found)} searches, longest {longest * 1000:.0f} ms")
    if longest > LONGEST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Generated Pods about the policies of the changes, with what no class of Pods has.

These are several containers, requests, terms and tolerations.
"""

from __future__ import annotations

import random
from datetime import date
from typing import Any

from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.scheduling import REQUIRED

JSON = dict[str, Any]

TODAY = date(2026, 1, 1)
_RESOURCES = [
    "nvidia.com/gpu",
    "example.com/l4",
    "example.com/l5",
    "example.com/share",
    "example.com/memory",
    "example.com/mig-2",
    "nvidia.com/kai",
    "example.com/job",
    "example.com/queue",
    "example.com/zone",
    "cpu",
    "memory",
]
_LABELS = {
    "model": ("a100", "h100", "l4", "l5", "kai", "jobs", "queues", "x"),
    "zone": ("a", "b", "c"),
    "zones": ("a", "c"),
}
_NAMESPACES = [
    "default",
    "ml",
    "web",
    "team-x",
    "team-9",
    "tools",
    "dev-1",
    "test",
    "lab",
    "legacy",
    "old",
]
_CLASSES = ("gpu.example.com", "gpu.example.org")


class Pods:
    """Pods about the policies of the changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self) -> tuple[JSON, Request, Facts]:
        r, choose, perhaps = self._random, self._random.choice, self._perhaps
        spec: JSON = {"containers": [self._container(n) for n in range(r.randint(1, 2))]}
        metadata: JSON = {"name": choose(("example", "old-x", "older"))}
        if perhaps(0.3):
            spec["initContainers"] = [self._container(9)]
        if perhaps(0.4):
            spec["tolerations"] = [self._toleration() for _ in range(r.randint(1, 3))]
        if perhaps(0.3):
            key = choose([*_LABELS])
            spec["nodeSelector"] = {key: choose(_LABELS[key])}
        if perhaps(0.3):
            terms = [
                {"matchExpressions": [self._expression() for _ in range(r.randint(1, 2))]}
                for _ in range(r.randint(1, 2))
            ]
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        if perhaps(0.2):
            spec["resourceClaims"] = [{"name": "c", "resourceClaimName": choose(_CLASSES)}]
            spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "c"}]
        if perhaps(0.2):
            names = ("gpu-fraction", "gpu-memory", "gpu-count", "gpu-counts")
            own = {name: choose(("1", "2", "3")) for name in names if perhaps(0.5)}
            containers = ("gpu-container", "gpu-containers")
            own |= {name: "c1" for name in containers if perhaps(0.3)}
            metadata["annotations"] = own
            spec["schedulerName"] = choose(("kai-scheduler", "other"))
        if perhaps(0.3):
            metadata["labels"] = {"owner": choose(("me", "you", "x"))}
        for field, values in {
            "activeDeadlineSeconds": (60, 86400, 86401, 90001),
            "priorityClassName": ("batch", "high", "x", "system-node-critical"),
            "runtimeClassName": ("gvisor", "nvidia"),
            "securityContext": ({"runAsUser": 0}, {"runAsUser": 1000}),
            "restartPolicy": ("Never", "Always"),
        }.items():
            if perhaps(0.2):
                spec[field] = choose(values)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        if perhaps(0.2):
            template = {"metadata": {"labels": {}}, "spec": spec}
            body = {"selector": {"matchLabels": {}}, "template": template}
            pod = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": metadata,
                "spec": body,
            }
        namespace = choose(_NAMESPACES)
        labels = {"gpu": choose(("yes", "no")), choose(("tier", "tiers")): choose(("one", "two"))}
        claims = {(namespace, name): Claim((frozenset({name}),)) for name in _CLASSES}
        known = Facts(
            claims=claims,
            namespace_labels=choose((None, labels)),
            runtime_classes=frozenset({"nvidia", "nvidia-cdi"}),
        )
        return pod, Request(namespace, choose(("", "admin", "root")), today=TODAY), known

    def _perhaps(self, share: float) -> bool:
        return self._random.random() < share

    def _container(self, number: int) -> JSON:
        choose = self._random.choice
        container: JSON = {"name": f"c{number}", "image": choose(("app", "ollama/ollama"))}
        if self._perhaps(0.7):
            counts = {choose(_RESOURCES): choose((1, 1, 2, 3, 5, 8, 9)) for _ in range(2)}
            container["resources"] = {choose(("limits", "limits", "requests")): counts}
        if self._perhaps(0.2):
            container["securityContext"] = {"privileged": True}
        if self._perhaps(0.1):
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        return container

    def _toleration(self) -> JSON:
        choose = self._random.choice
        given = {"effect": choose((None, "NoSchedule", "NoExecute"))}
        key = choose((None, "nvidia.com/gpu", "l4", "l5", "dra", "repair", "repairs"))
        if key is None or self._perhaps(0.5):
            given |= {"key": key, "operator": "Exists"}
        else:
            values = ("present", "absent", "yes-1", "yes-2", "x")
            given |= {"key": key, "operator": "Equal", "value": choose(values)}
        return {name: value for name, value in given.items() if value}

    def _expression(self) -> JSON:
        choose = self._random.choice
        key = choose([*_LABELS])
        operator = choose(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        values = [choose(_LABELS[key]) for _ in range(self._random.randint(1, 2))]
        own = {"values": values} if operator in ("In", "NotIn") else {}
        return {"key": key, "operator": operator, **own}

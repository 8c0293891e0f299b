"""Changes around a running replica: its policy, its certificate, the cluster's nodes."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

from certs.authority import issue_leaf
from certs.files import write_pairs
from certs.keypair import Names
from controlplane.gpufence import Server
from fake_apiserver import NODES, FakeApiServer
from soak.traffic import HOST
from specs import default_spec, fence_policy
from webhook.active_policy import PATH as FENCE_POLICIES

POLICY_USERS = (65532, 65533)
"""The user IDs of the two policies, which alternate."""

FIRST_NODES = 500

_GENERATIONS = itertools.count(1)


def policy_spec(user: int) -> dict[str, Any]:
    return default_spec() | {"hardening": {"runAsUser": user}}


def put_policy(api: FakeApiServer, user: int) -> None:
    metadata = {"name": "gpufence", "generation": next(_GENERATIONS)}
    api.put(FENCE_POLICIES, fence_policy(policy_spec(user)) | {"metadata": metadata})


async def policies(api: FakeApiServer, seconds: float) -> None:
    for user in itertools.cycle(reversed(POLICY_USERS)):
        await asyncio.sleep(seconds)
        put_policy(api, user)


async def certificates(server: Server, seconds: float) -> None:
    ca, _ = server.issued
    while True:
        await asyncio.sleep(seconds)
        leaf = issue_leaf(ca, Names.parse(["localhost"], [HOST]), datetime.now(UTC))
        write_pairs(server.certificates, ca, leaf, force=True)


def put_nodes(api: FakeApiServer) -> None:
    for number in range(FIRST_NODES):
        api.put(NODES, _node(number, 0))


async def nodes(api: FakeApiServer, rate: float) -> None:
    """Change the labels of nodes at a rate; sometimes remove a node and add it again."""
    for change in itertools.count(1):
        number = change % FIRST_NODES
        if change % 50 == 0:
            api.remove(NODES, f"node-{number}")
        api.put(NODES, _node(number, change))
        if change % 1000 == 0:
            api.compact()
        await asyncio.sleep(1 / rate)


def _node(number: int, change: int) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": f"node-{number}", "changed": str(change)}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels},
        "spec": {},
        "status": {"allocatable": {"cpu": "8"}},
    }
    if number % 10 == 0:
        labels["nvidia.com/gpu.present"] = "true"
        # Enough for the largest Pod of the reviews, whose responses do not depend on the nodes.
        node["status"]["allocatable"]["nvidia.com/gpu"] = "16"
        node["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    return node

"""``adopt --dump``: a dump of a cluster answers what an audit reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from webhook.kube.errors import ApiError
from webhook.tools.cli.commands.adopt import Dump
from webhook.tools.documents.document import InputError

JSON = dict[str, Any]


def obj(kind: str, name: str, version: str = "v1", namespace: str = "", **fields: Any) -> JSON:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


CLUSTER = [obj("Node", "gpu-1"), obj("Namespace", "ml")]


def dump(path: Path, *objects: JSON) -> Dump:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return Dump(str(path))


@pytest.mark.parametrize(
    ("kind", "version", "collection"),
    [
        ("Pod", "v1", "/api/v1/pods"),
        ("Deployment", "apps/v1", "/apis/apps/v1/deployments"),
        ("RuntimeClass", "node.k8s.io/v1", "/apis/node.k8s.io/v1/runtimeclasses"),
        ("NetworkPolicy", "networking.k8s.io/v1", "/apis/networking.k8s.io/v1/networkpolicies"),
        ("Gateway", "gateway.networking.k8s.io/v1", "/apis/gateway.networking.k8s.io/v1/gateways"),
    ],
)
async def test_a_collection_has_the_plural_of_its_kind(
    tmp_path: Path, kind: str, version: str, collection: str
) -> None:
    made = obj(kind, "a", version, "ml")
    listed = json.loads(await dump(tmp_path / "d.json", *CLUSTER, made).get(collection))
    assert listed["items"] == [made]


async def test_pods_that_have_ended_are_left_out(tmp_path: Path) -> None:
    pods = [
        obj("Pod", phase, "v1", "ml", status={"phase": phase})
        for phase in ("Running", "Succeeded", "Failed")
    ]
    listed = json.loads(await dump(tmp_path / "d.json", *CLUSTER, *pods).get("/api/v1/pods"))
    assert [pod["metadata"]["name"] for pod in listed["items"]] == ["Running"]


async def test_kinds_are_listed_by_group_and_version(tmp_path: Path) -> None:
    cluster = dump(
        tmp_path / "d.json",
        *CLUSTER,
        obj("PyTorchJob", "a", "kubeflow.org/v1", "ml"),
        obj("MPIJob", "b", "kubeflow.org/v2beta1", "ml"),
    )
    [group] = json.loads(await cluster.get("/apis"))["groups"]
    assert group["name"] == "kubeflow.org"
    assert [each["version"] for each in group["versions"]] == ["v1", "v2beta1"]
    [resource] = json.loads(await cluster.get("/apis/kubeflow.org/v1"))["resources"]
    assert (resource["name"], resource["namespaced"]) == ("pytorchjobs", True)
    with pytest.raises(ApiError, match="has no cronjobs"):
        await cluster.get("/apis/batch/v1/cronjobs")


@pytest.mark.parametrize("missing", [0, 1], ids=["nodes", "namespaces"])
def test_a_dump_needs_nodes_and_namespaces(tmp_path: Path, missing: int) -> None:
    objects = [each for number, each in enumerate(CLUSTER) if number != missing]
    with pytest.raises(
        InputError, match=r"contains no (nodes|namespaces)\. Create it with kubectl"
    ):
        dump(tmp_path / "d.json", *objects)

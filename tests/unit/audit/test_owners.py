"""What is kept of the ownership of an object, whatever its author writes."""

from __future__ import annotations

from typing import Any

import msgspec

from specs import JSON
from webhook.cluster.kinds import POD
from webhook.tools.audit.owners import Owned, OwnedMetadata, Owners

REPLICA_SET = ("apps", "ReplicaSet")
LARGE = "x" * 1_000_000


def read(owners: Owners, key: tuple[str, str], spec: JSON | None = None, **more: Any) -> Owned:
    metadata = {"name": "web", "namespace": "team", "uid": key[1], **more}
    return owners.owned(msgspec.convert(metadata, OwnedMetadata), key, spec or {})


def owned_by(kind: str, **more: Any) -> list[JSON]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": kind, "controller": True}
    return [{**owner, **more}]


def test_an_owner_reference_is_cut_to_the_length_of_a_name() -> None:
    pod = read(Owners(), POD.key, ownerReferences=owned_by(LARGE, name=LARGE, uid=LARGE))
    assert pod.owner is not None
    assert {len(text) for text in (pod.owner.kind, pod.owner.name, pod.owner.uid)} == {253}


def test_an_owner_with_a_large_selector_owns_nothing() -> None:
    owners = Owners()
    expression = {"key": "a", "operator": "NotIn", "values": [str(n) for n in range(1000)]}
    spec = {"selector": {"matchExpressions": [expression]}}
    owners.add(REPLICA_SET, [read(owners, REPLICA_SET, spec)])
    pod = read(owners, POD.key, ownerReferences=owned_by("ReplicaSet"))
    assert owners.top(pod) == pod

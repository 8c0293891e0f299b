"""What API servers and gpufence make of the forms of ResourceClaims that people write."""

from __future__ import annotations

import json

import pytest

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.versions import CLAIMS
from specs import JSON
from webhook.cluster.manifests import claim_of
from webhook.devices.claims import read_claim

CLASS = {"deviceClassName": "gpu.nvidia.com"}
FLAT: JSON = {"name": "gpu", **CLASS, "count": 2}
EXACTLY: JSON = {"name": "gpu", "exactly": {**CLASS, "count": 2}}
EITHER: JSON = {"name": "gpu", "firstAvailable": [{"name": "one", **CLASS}]}
NESTED: JSON = {"name": "gpu", "firstAvailable": [{"name": "one", "exactly": CLASS}]}


def spec(*requests: JSON) -> JSON:
    return {"devices": {"requests": list(requests)}}


MALFORMED: list[tuple[str, JSON]] = [
    ("ResourceClaim", spec(FLAT)),
    ("ResourceClaim", spec(EXACTLY, {**FLAT, "name": "more"})),
    ("ResourceClaim", spec(NESTED)),
    ("ResourceClaim", spec({**EXACTLY, **CLASS})),
    ("ResourceClaim", spec({"name": "gpu", "exactly": [CLASS]})),
    ("ResourceClaim", spec({"name": "gpu", "exactly": {"resourceClassName": "gpu.nvidia.com"}})),
    ("ResourceClaim", {"devices": {"requests": EXACTLY}}),
    ("ResourceClaim", {"devices": {"request": [EXACTLY]}}),
    ("ResourceClaim", {"devices": [EXACTLY]}),
    ("ResourceClaim", {"requests": [EXACTLY]}),
    ("ResourceClaim", {"spec": spec(EXACTLY)}),
    ("ResourceClaim", {"resourceClassName": "gpu.nvidia.com"}),
    ("ResourceClaimTemplate", spec(EXACTLY)),
    ("ResourceClaimTemplate", {"spec": spec(FLAT)}),
    ("ResourceClaimTemplate", {"template": {"spec": spec(EXACTLY)}}),
]
ACCEPTED: list[tuple[str, JSON]] = [
    ("ResourceClaim", {}),
    ("ResourceClaim", spec(EXACTLY)),
    ("ResourceClaim", spec(EITHER)),
    ("ResourceClaimTemplate", {"spec": {}}),
    ("ResourceClaimTemplate", {"spec": spec(EITHER, {**EXACTLY, "name": "more"})}),
]


def create(control_plane: ControlPlane, namespace: str, claim: JSON) -> JSON:
    """Return the spec of a claim as the API server has it for kubectl (dry run)."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/{claim['kind'].lower()}s"
    strictly = f"{path}?dryRun=All&fieldValidation=Strict"
    return dict(control_plane.api.request("POST", strictly, claim)["spec"])


def of(kind: str, spec: JSON) -> JSON:
    api = "resource.k8s.io/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "one"}, "spec": spec}


def cured(kind: str, cure: str) -> JSON:
    """Return the spec that a remedy writes."""
    place, _, rest = cure.removeprefix("Write ").partition(": ")
    requests = json.loads(rest.removesuffix(f" in {kind} one"))
    assert place == ("spec.spec" if kind.endswith("Template") else "spec") + ".devices.requests"
    return {"spec": spec(*requests)} if kind.endswith("Template") else spec(*requests)


@CLAIMS
def test_gpufence_and_the_api_server_agree_on_the_forms_of_claims(
    control_plane: ControlPlane, namespace: str
) -> None:
    for kind, written in ACCEPTED:
        assert not claim_of(of(kind, written)).problem, written
        create(control_plane, namespace, of(kind, written))
    for kind, written in MALFORMED:
        claim = claim_of(of(kind, written))
        assert claim.problem, written
        assert claim.requests[0] == {"gpu.nvidia.com"}
        with pytest.raises(ApiError):
            create(control_plane, namespace, of(kind, written))
        stored = create(control_plane, namespace, of(kind, cured(kind, claim.cure)))
        assert read_claim(stored.get("spec", stored)).requests == claim.requests

"""FencePolicies in a control plane: the definition of the kind, and objects of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import yaml

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from paths import CHART
from policies.document import API_VERSION
from specs import fence_policy

PATH = f"/apis/{API_VERSION}/fencepolicies"
DEFINITION: dict[str, Any] = yaml.safe_load((CHART / "crds" / "fencepolicies.yaml").read_text())
_APPLY = "application/apply-patch+yaml"


def define(cluster: ControlPlane) -> None:
    """Have the kind served, if it is not yet."""
    name = DEFINITION["metadata"]["name"]
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"{definitions}/{name}?fieldManager=test&force=true"
    cluster.api.request("PATCH", path, DEFINITION, _APPLY)

    # A kind that is not served is no error of the API, but a page that is not found.
    until(
        lambda: "FencePolicyList" in cluster.api.text(PATH),
        "the API server to serve FencePolicies",
    )


def use(api: Api, spec: dict[str, Any], name: str = "gpufence") -> None:
    """Apply a policy: its fields are those of the spec, and no others."""
    path = f"{PATH}/{name}?fieldManager=test&force=true"
    api.request("PATCH", path, fence_policy(spec, name), _APPLY)


@contextmanager
def used(cluster: ControlPlane, spec: dict[str, Any], name: str = "gpufence") -> Iterator[None]:
    """Have a policy in the block."""
    define(cluster)
    use(cluster.api, spec, name)
    try:
        yield
    finally:
        # A test may have deleted it, or the definition.
        with suppress(ApiError):
            cluster.api.request("DELETE", f"{PATH}/{name}")

"""What a rule may know beyond the Pod, as frozen plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from policies.kubernetes.nodes import NodeIndex

JSONObject = dict[str, Any]
"""An object of the Kubernetes API as parsed JSON: nothing is dropped, nothing is defaulted."""

ObjectKey = tuple[str, str]
"""Namespace and name."""

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(frozen=True, slots=True)
class Claim:
    """The device classes that a ResourceClaim, or a template of one, asks for.

    One entry a request: the classes of which any one will do (``exactly`` names one,
    ``firstAvailable`` several). Source: ``resource.k8s.io/v1`` ``DeviceRequest``.
    """

    requests: tuple[frozenset[str], ...]


class Facts(msgspec.Struct, frozen=True):
    """Who asks for what, and what is known of the cluster.

    A claim that is not in ``claims`` is unresolved: it neither opens the fence nor condemns a Pod.
    """

    namespace: str = "default"
    username: str = ""
    operation: Operation = "CREATE"
    subresource: str = ""
    old: JSONObject | None = None
    final: bool = False
    """Whether a Pod is judged as it will be stored: no setter runs, whatever it lacks it lacks."""
    claims: Mapping[ObjectKey, Claim] = {}
    claim_templates: Mapping[ObjectKey, Claim] = {}
    extended_resource_classes: Mapping[str, str] = {}
    """Extended resource name to the DeviceClass that stands behind it (KEP-5004)."""
    nodes: NodeIndex | None = None
    """The cluster's nodes; ``None`` where nobody looked."""
    namespace_labels: Mapping[str, str] | None = None
    """Labels of the namespace; ``None`` where they are not known."""
    runtime_classes: frozenset[str] | None = None
    """Names of the cluster's RuntimeClasses; ``None`` where nobody looked."""
    today: date | None = None
    """The day on which exceptions expire or not; ``None`` lets none expire."""

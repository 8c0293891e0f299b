"""What a decision depends on besides the object and the policy: the request and the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from typing import Literal

import msgspec

from policies.kubernetes.claims import Claim, HostShares
from policies.kubernetes.core_v1 import PodObject, PodSpec, ResourceRequirements
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject, ObjectKey
from policies.kubernetes.readers import TemplateReader

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class Request(msgspec.Struct, frozen=True, gc=False):
    """The API request that writes the object: by whom, where, and what was there before."""

    namespace: str = "default"
    username: str = ""
    operation: Operation = "CREATE"
    subresource: str = ""
    old: JSONObject | PodObject | None = None
    """On UPDATE, the object as it is stored."""
    today: date | None = None
    """The day that decides whether exceptions have expired; ``None`` lets none expire."""
    fail_closed: bool = False
    """Whether an unknown fact counts against the object, as it does where an API server waits for
    the verdict. A file is judged without a cluster."""


class Facts(msgspec.Struct, frozen=True):
    """What is known of the cluster. ``None`` stands for unknown.

    A claim that is not in ``claims`` is unresolved: it counts neither for nor against a Pod.
    """

    kubernetes: int | None = None
    """The minor version of the cluster's Kubernetes 1.x."""
    claims: Mapping[ObjectKey, Claim] = {}
    claim_templates: Mapping[ObjectKey, Claim] = {}
    extended_resource_classes: Mapping[str, str] = {}
    """Extended resource name to the DeviceClass that provides it (KEP-5004)."""
    host_shares: Mapping[str, Collection[HostShares]] = {}
    """By DeviceClass, what its devices take of their nodes."""
    nodes: NodeIndex | None = None
    templates: tuple[NodeTemplate, ...] = ()
    """The nodes that autoscalers can add, as far as the cluster describes them."""
    gangs: Mapping[ObjectKey, int] = {}
    """With how many Pods a PodGroup starts at least. Under ``Job/name``, what a Workload of
    ``scheduling.k8s.io`` says of the Job of that name."""
    quotas: Mapping[str, Mapping[str, int]] = {}
    """By namespace, how many devices of a name its ResourceQuotas allow."""
    defaults: Mapping[str, ResourceRequirements] = {}
    """By namespace, the devices that its LimitRanges give to containers."""
    template_readers: Mapping[ObjectKey, TemplateReader] = {}
    """Who simulates a PodTemplate in files, by its namespace and name."""
    topologies: tuple[PodSpec, ...] = ()
    """What the flavors of Kueue that have a topology add to Pods, in files."""
    namespace_labels: Mapping[str, str] | None = None
    """The labels of the request's namespace."""
    runtime_classes: Mapping[str, str] = {}
    """The handlers of the known RuntimeClasses, by name."""
    runtime_scheduling: Mapping[str, PodSpec] = {}
    """By the name of a RuntimeClass in files, the node selector and tolerations that API servers
    add to its Pods before they call gpufence."""

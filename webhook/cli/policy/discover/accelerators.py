"""Accelerators: the vendors' resources, labels and taints, and the nodes that have them.

The labels come from the documentation of GPU feature discovery, Node Feature Discovery, Karpenter,
the AMD node labeller, the Intel device plugins, and the cloud providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.kubernetes.names import NameSet
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from policies.kubernetes.selector import selector_of


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor of accelerators, and how its nodes are recognized.

    ``products`` are the keys of labels whose value is the model. ``marks`` are labels of all nodes
    of the vendor. Both start with the preferred one. ``taint`` is the key of the customary taint.
    """

    name: str
    resource: str
    """The resource of a whole device."""
    resources: NameSet
    taint: str
    products: tuple[str, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    device_classes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    """Where the vendor's documentation installs its operators and drivers."""


VENDORS = (
    Vendor(
        "nvidia",
        "nvidia.com/gpu",
        NameSet(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*"]),
        "nvidia.com/gpu",
        products=(
            "nvidia.com/gpu.product",
            "cloud.google.com/gke-accelerator",
            "karpenter.k8s.aws/instance-gpu-name",
            "eks.amazonaws.com/instance-gpu-name",
            "karpenter.azure.com/sku-gpu-name",
        ),
        marks=(
            ("nvidia.com/gpu.present", "true"),
            ("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia"),
            ("eks.amazonaws.com/instance-gpu-manufacturer", "nvidia"),
            ("karpenter.azure.com/sku-gpu-manufacturer", "nvidia"),
            ("kubernetes.azure.com/accelerator", "nvidia"),
            ("feature.node.kubernetes.io/pci-10de.present", "true"),
        ),
        device_classes=("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
        namespaces=(
            "gpu-operator",
            "gpu-operator-resources",
            "nvidia-device-plugin",
            "nvidia-network-operator",
            "nvidia-dra-driver-gpu",
            "dra-driver-nvidia-gpu",
        ),
    ),
    Vendor(
        "amd",
        "amd.com/gpu",
        NameSet(
            ["amd.com/gpu", "amd.com/spx_*", "amd.com/dpx_*", "amd.com/qpx_*", "amd.com/cpx_*"]
        ),
        "amd.com/gpu",
        products=("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
        marks=(("feature.node.kubernetes.io/amd-gpu", "true"),),
        device_classes=("gpu.amd.com",),
        namespaces=("kube-amd-gpu",),
    ),
    Vendor(
        "intel",
        "gpu.intel.com/xe",
        NameSet(["gpu.intel.com/i915", "gpu.intel.com/xe"]),
        "gpu.intel.com/gpu",
        products=("gpu.intel.com/product",),
        marks=(("intel.feature.node.kubernetes.io/gpu", "true"),),
        device_classes=("gpu.intel.com",),
        namespaces=("inteldeviceplugins-system", "intel-gpu-resource-driver"),
    ),
    Vendor(
        "gaudi",
        "habana.ai/gaudi",
        NameSet(["habana.ai/gaudi"]),
        "habana.ai/gaudi",
        marks=(
            ("intel.feature.node.kubernetes.io/gaudi", "true"),
            ("feature.node.kubernetes.io/pci-1da3.present", "true"),
        ),
        device_classes=("gaudi.intel.com",),
        namespaces=("habana-system", "habana-ai-operator"),
    ),
    Vendor(
        "tpu",
        "google.com/tpu",
        NameSet(["google.com/tpu"]),
        "google.com/tpu",
        products=("cloud.google.com/gke-tpu-accelerator",),
    ),
    Vendor(
        "neuron",
        "aws.amazon.com/neuron",
        NameSet(
            ["aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice"]
        ),
        "aws.amazon.com/neuron",
        products=("karpenter.k8s.aws/instance-accelerator-name",),
        marks=(("karpenter.k8s.aws/instance-accelerator-manufacturer", "aws"),),
    ),
)

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
NODE_GROUPS = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
)
"""Keys of labels whose value is the name of a group of equal nodes."""

SHARING_LABELS = ("nvidia.com/gpu.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy")
PARTITION_LABELS = (
    "cloud.google.com/gke-gpu-partition-size",
    *SHARING_LABELS,
)
"""Keys of labels that tell whole GPUs, partitions and shares of one model apart.

Not ``nvidia.com/mig.config``: it changes with the next partitioning of a node."""

SHARING_STRATEGIES = ("time-slicing", "mps", "time-sharing")

TRANSIENT_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node-role.kubernetes.io/",
    "node.cilium.io/",
    "karpenter.sh/",
    "ebs.csi.aws.com/",
    "efs.csi.aws.com/",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
)
"""Prefixes of taints that come and go with the state of a node, or belong to control planes."""

GENERIC_TAINTS = (
    # Capacity that can be withdrawn, or that is allocated in another way.
    "kubernetes.azure.com/scalesetpriority",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-preemptible",
    "cloud.google.com/gke-queued",
    "spot",
    # Architectures, systems and sandboxes.
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "sandbox.gke.io/runtime",
    # Storage and networks.
    "node.ocs.openshift.io/storage",
    "storage-node",
    "vpc.amazonaws.com/efa",
    "vpc.amazonaws.com/efa-k8s-device-plugin",
    "rdma",
    # Nodes of the platform.
    "CriticalAddonsOnly",
    "eks.amazonaws.com/compute-type",
    "kubernetes.azure.com/mode",
    "components.gke.io/gke-managed-components",
)
"""Taints that are about something else than accelerators. Pods choose such nodes by their own
tolerations."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A node, or a template of nodes, with accelerators of a vendor."""

    source: Node | NodeTemplate
    devices: frozenset[str]
    """The names of the vendor's resources that it offers, also those without a device."""
    is_bare: bool = False
    """Whether the node offers no device at the moment."""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def is_template(self) -> bool:
        return isinstance(self.source, NodeTemplate)

    @property
    def taints(self) -> frozenset[Taint]:
        """The taints that keep Pods away for good."""
        return frozenset(
            taint
            for taint in self.source.taints
            if taint.effect in FENCING_EFFECTS and not taint.key.startswith(TRANSIENT_TAINTS)
        )

    @property
    def shared(self) -> frozenset[str]:
        """The resources that are shares of a device."""
        strategies = {value for key in SHARING_LABELS for value in self.values(key)}
        is_shared = not strategies.isdisjoint(SHARING_STRATEGIES)
        return frozenset(name for name in self.devices if is_shared or name.endswith(".shared"))

    @property
    def kind(self) -> frozenset[str]:
        """Whether the devices are whole ones, partitions or shares."""
        shared = self.shared
        is_partition = any(self.values("cloud.google.com/gke-gpu-partition-size"))
        return frozenset(
            "shares"
            if device in shared
            else "partitions"
            if is_partition or "/mig-" in device or "px_" in device
            else "whole devices"
            for device in self.devices
        )

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values that a label has, or can have on the nodes of a template."""
        if isinstance(self.source, NodeTemplate):
            return tuple(self.source.values(key))
        return (self.source.labels[key],) if key in self.source.labels else ()

    def has(self, key: str, value: str) -> bool:
        """Return whether the nodes have the label, or can have it."""
        if isinstance(self.source, NodeTemplate):
            return self.source.promises({key: (value,)})
        return self.source.labels.get(key) == value


def members_of(
    vendor: Vendor, nodes: Iterable[Node], templates: Iterable[NodeTemplate]
) -> list[Member]:
    """Return the nodes and the templates with accelerators of the vendor."""
    sources: tuple[Node | NodeTemplate, ...] = (*nodes, *templates)
    members = [_member(source, vendor) for source in sources]
    return [member for member in members if _is_of(member, vendor)]


def _member(source: Node | NodeTemplate, vendor: Vendor) -> Member:
    offered = source.allocatable or {}
    has_device = any(count for name, count in offered.items() if name in vendor.resources)
    is_bare = isinstance(source, Node) and not has_device
    return Member(source, _devices(source.allocatable, vendor), is_bare)


def _devices(allocatable: Mapping[str, int] | None, vendor: Vendor) -> frozenset[str]:
    names = {name: count for name, count in (allocatable or {}).items() if name in vendor.resources}
    # A node with partitions reports whole devices as well: none.
    return frozenset(name for name, count in names.items() if count) or frozenset(names)


def _is_of(member: Member, vendor: Vendor) -> bool:
    source = member.source
    if isinstance(source, NodeTemplate):
        restricted = {requirement.key for requirement in source.requirements}
        if about := [(key, value) for key, value in vendor.marks if key in restricted]:
            return source.promises(selector_of(dict(about)))
        if any(t.key == vendor.taint or t.key in vendor.resources for t in source.taints):
            return True
    return bool(
        member.devices
        or any(any(member.values(key)) for key in vendor.products)
        or any(value in member.values(key) for key, value in vendor.marks)
    )

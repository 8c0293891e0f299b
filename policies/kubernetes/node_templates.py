"""Nodes that do not exist yet: what an autoscaler knows of the nodes that it can add.

An autoscaler adds a node for a pending Pod if the Pod fits its template. Labels that other software
adds once the node is up, such as those of GPU feature discovery, are not part of it. A Pod that
requires such a label stays Pending.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.scheduling import Alternative, Taint, parses
from policies.kubernetes.selector import Selector, can_match, selects

# sigs.k8s.io/karpenter/pkg/apis/v1/labels.go, WellKnownLabels.
WELL_KNOWN_LABELS = frozenset(
    {
        "karpenter.sh/capacity-type",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)

NODE_POOL_LABEL = "karpenter.sh/nodepool"
"""The label of the nodes of a NodePool, with its name."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """Nodes that an autoscaler can add: a NodePool of Karpenter, a MachineDeployment.

    ``requirements`` restrict labels whose values the autoscaler chooses. ``provider`` is the prefix
    of labels that a cloud provider sets, with any value.
    """

    name: str
    """Kind and name, for messages."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    provider: str = ""
    chooses: bool = False
    """Whether the autoscaler chooses the values of the well-known labels."""
    allocatable: Mapping[str, int] | None = None
    """The number of devices of a node, by extended resource; ``None`` if it varies."""
    startup_taints: tuple[Taint, ...] = ()
    """Taints that a new node has until it is ready."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """How many devices its nodes may have in all, by extended resource, where that is limited."""

    @property
    def promised(self) -> Hashable:
        """All but the name: equal for templates that can be added for the same Pods.

        Each limit counts, so no template with limits is equal to another one.
        """
        offered = self.allocatable
        return (
            (self.name, *self.limits.items()) if self.limits else (),
            frozenset(self.labels.items()),
            self.taints,
            tuple((each.key, each.operator, *(each.values or ())) for each in self.requirements),
            self.provider,
            self.chooses,
            None if offered is None else frozenset(offered.items()),
            self.startup_taints,
        )

    def promises(self, selector: Selector) -> bool:
        """Return whether a node can meet the selector when it joins, as far as is known."""
        return all(self._promises(key, values) for key, values in selector.items())

    def values(self, key: str) -> Iterator[str]:
        """Yield the values of a label that the template names."""
        if key in self.labels:
            yield self.labels[key]
        else:
            named = (
                requirement.values or ()
                for requirement in self.requirements
                if (requirement.key, requirement.operator) == (key, "In")
            )
            yield from (v for v in next(named, ()) if self.promises({key: (v,)}))

    def _promises(self, key: str, values: tuple[str, ...]) -> bool:
        if key in self.labels:
            return selects({key: values}, self.labels)
        about = tuple(requirement for requirement in self.requirements if requirement.key == key)
        is_known = key in WELL_KNOWN_LABELS or bool(
            self.provider and key.startswith(f"{self.provider}/")
        )
        if not about and not (self.chooses and is_known):
            return False
        # An operator that Kubernetes does not have, such as Karpenter's Gte, may allow any value.
        return can_match(Alternative({}, tuple(filter(parses, about)), (), ""), {key: values})

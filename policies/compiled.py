"""The policy as the rules read it: sets, tuples and tables, made once from the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from policies.finding import Action
from policies.names import NameSet

ProfileLevel = Literal["baseline", "restricted"]
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(NamedTuple):
    """A taint of a pool's nodes. A ``value`` of ``None`` stands for any value."""

    key: str
    effect: str
    value: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A set of GPU nodes: what they offer, the taints that fence them, the labels on them."""

    name: str
    resources: NameSet
    device_classes: frozenset[str]
    taints: tuple[Taint, ...]
    labels: Mapping[str, str]
    shared_resources: NameSet

    @property
    def example_request(self) -> str:
        """How a container asks for one device of the pool, for use in advice."""
        if self.resources.exact:
            return f"{min(self.resources.exact)}: 1 under resources.limits"
        if self.resources.prefixes:
            return f"{self.resources.prefixes[0]}...: 1 under resources.limits"
        return f"a resource claim on device class {min(self.device_classes)}"


@dataclass(frozen=True, slots=True)
class Hardening:
    """What is filled into the security context of a GPU Pod, and the profile it must meet.

    ``None`` for an ID leaves it to the image.
    """

    level: ProfileLevel = "restricted"
    run_as_user: int | None = 65532
    run_as_group: int | None = None
    fs_group: int | None = None


@dataclass(frozen=True, slots=True)
class Exemptions:
    """Whose Pods are none of the policy's business: the three kinds that Pod Security has."""

    namespaces: frozenset[str] = frozenset()
    usernames: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A FencePolicy, ready for use."""

    pools: tuple[Pool, ...]
    hardening: Hardening = Hardening()
    actions: Mapping[str, Action] = field(default_factory=dict)
    exemptions: Exemptions = Exemptions()
    pool_of_class: Mapping[str, Pool] = field(init=False)

    def __post_init__(self) -> None:
        classes = {name: pool for pool in self.pools for name in pool.device_classes}
        object.__setattr__(self, "pool_of_class", classes)

    def pool_of_resource(self, name: str) -> Pool | None:
        """Return the pool that offers the extended resource, if one does."""
        for pool in self.pools:
            if name in pool.resources:
                return pool
        return None

"""The policy that a process applies: a fixed one, or the last valid one of a FencePolicy.

Replicas and the controller follow one FencePolicy of their cluster by its name. While the object is
invalid or deleted, the policy before it stays active.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from policies.document import API_VERSION, KIND, PolicyError, parse_policy
from policies.policy import Policy
from webhook.kube.collection import Collection, Identity
from webhook.kube.reflector import Watches
from webhook.logs import event

PATH = f"/apis/{API_VERSION}/fencepolicies"

NO_POLICY = Policy(pools=())
"""The policy before the first valid one. It fences nothing, and no review is answered with it."""

_RESOURCE = "fencepolicies"

_log = logging.getLogger("gpufence")


class PolicyMetadata(Identity, frozen=True, rename="camel"):
    """ObjectMeta of a FencePolicy. The generation changes with the spec only."""

    uid: str = ""
    generation: int = 0


class FencePolicyObject(msgspec.Struct, frozen=True, rename="camel"):
    """A FencePolicy as the API server has it, its spec not yet validated."""

    metadata: PolicyMetadata
    spec: Any = None
    status: Any = None

    def policy(self) -> Policy:
        """Return the valid policy.

        Raises:
            PolicyError: the policy is invalid.
        """
        metadata = {"name": self.metadata.name}
        return parse_policy(
            {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec}
        )


def fence_policy(name: str) -> Collection[FencePolicyObject]:
    """Return the collection of the one FencePolicy with this name."""
    return Collection(_RESOURCE, PATH, FencePolicyObject, fields=f"metadata.name={name}")


class ActivePolicy:
    """Holds the active policy. It is the store of a watched FencePolicy.

    The ``followers`` are called with each new policy, and ``count`` for each new version of the
    object with whether it is applied.
    """

    def __init__(self, name: str, fixed: Policy | None = None) -> None:
        """Start with a ``fixed`` policy, or wait for the FencePolicy with this name."""
        self.name = name
        self.current = fixed or NO_POLICY
        self.known = asyncio.Event()
        """Whether there is an active policy."""
        self.newest: FencePolicyObject | None = None
        """The object as it is now; None if there is none."""
        self._problems: tuple[str, ...] = ()
        self.generation = 0
        """The generation of the object whose policy is active."""
        self.followers: list[Callable[[Policy], None]] = []
        self.count: Callable[[bool], None] = lambda _is_applied: None
        self._watches: Watches | None = None
        self._is_fixed = fixed is not None
        if self._is_fixed:
            self.known.set()

    def follow(self, watches: Watches) -> None:
        """Follow the FencePolicy of a cluster."""
        self._watches = watches
        watches.need(fence_policy(self.name), self)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the newest object; empty if its policy is active."""
        if self.newest is not None or self._is_fixed:
            return self._problems
        unread = self._watches.missing().get(_RESOURCE) if self._watches else None
        if unread is None:
            return (f"the cluster has no FencePolicy {self.name}: create it with kubectl apply",)
        return (f"FencePolicy {self.name} is not read yet: {unread or 'the list is not complete'}",)

    @property
    def is_stale(self) -> bool:
        """Whether an older policy than the newest object's is active."""
        return bool(self.problems)

    @property
    def problem(self) -> str:
        """Why the policy of the newest object is not active; empty if it is."""
        kept = "; the last valid policy stays active" if self.known.is_set() else ""
        return f"{'. '.join(self.problems)}{kept}" if self.problems else ""

    def put(self, item: FencePolicyObject, /) -> None:
        """Activate the policy of the object if it is valid, and keep the current one if not."""
        before, self.newest = self.newest, item
        if before is not None and _version(item) == _version(before):
            return
        try:
            policy = item.policy()
        except PolicyError as error:
            self._problems = tuple(f"FencePolicy {self.name}: {each}" for each in error.problems)
            self.count(False)
            event(_log, logging.WARNING, "policy rejected", problem=" ".join(self.problems))
            return
        self.current, self.generation, self._problems = policy, item.metadata.generation, ()
        for follow in self.followers:
            follow(policy)
        self.known.set()
        self.count(True)
        pools = [pool.name for pool in policy.pools]
        event(_log, logging.INFO, "policy applied", generation=self.generation, pools=pools)

    def remove(self, _name: str, /) -> None:
        """Note that the object is gone; its policy stays active."""
        if self.newest is not None:
            self.newest = None
            event(_log, logging.WARNING, "policy deleted", problem=self.problem)

    def names(self) -> Iterable[str]:
        return [] if self.newest is None else [self.newest.metadata.key]

    def __len__(self) -> int:
        return self.newest is not None


def _version(item: FencePolicyObject) -> tuple[str, int]:
    return item.metadata.uid, item.metadata.generation

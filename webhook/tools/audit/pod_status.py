"""What nodes report of a Pod: its user, and the times since which it is in its state.

A status has only the last change of each condition. Source: ``k8s.io/api/core/v1`` (``PodStatus``).
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from policies.kubernetes.core_v1 import PodResourceClaimStatus
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import descend

_CRASH_LOOP = "CrashLoopBackOff"
_SECONDS_PER_RESTART = 15 * 60.0
"""A container in a crash loop restarts more often on average: the kubelet waits for up to 5 minutes
between two restarts, and starts to count again after a run of 10 minutes."""


class PodTimes(NamedTuple):
    """Unix times of a Pod, in seconds, and the restarts of a container in a crash loop."""

    created: float
    scheduled: float
    changed: float
    """The time at which it became ready, or lost that state."""
    is_ready: bool
    loop_restarts: int

    def unready_since(self, now: float) -> float | None:
        """Return the time since which the Pod is not ready; ``None`` if it is.

        Each restart changes the condition Ready. A Pod in a crash loop is therefore not ready since
        it was scheduled, if it has restarted often enough for a loop of that age.
        """
        if now - self.scheduled < self.loop_restarts * _SECONDS_PER_RESTART:
            return self.scheduled
        return None if self.is_ready else self.changed


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    user: JSONObject | None = None
    state: JSONObject | None = None
    restart_count: int = 0


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    last_transition_time: datetime | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a status that an audit reads."""

    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None

    @property
    def generated_claims(self) -> dict[str | None, str | None]:
        """The claims that were made from templates, by the names of the Pod's entries."""
        return {each.name: each.resource_claim_name for each in self.resource_claim_statuses or ()}

    @property
    def user(self) -> int | None:
        """The lowest user ID of the running containers; ``None`` where none is reported."""
        users = [descend(each.user, ("linux", "uid")) for each in self.container_statuses or ()]
        return min((uid for uid in users if isinstance(uid, int)), default=None)

    def times(self, created: str | None) -> PodTimes:
        """Return the times of a Pod that was ``created`` at this time (RFC 3339).

        A Pod without the condition Ready is not ready since it was scheduled.
        """
        begin = datetime.fromisoformat(created).timestamp() if created else 0.0
        scheduled, _ = self._condition("PodScheduled", begin)
        changed, is_ready = self._condition("Ready", scheduled)
        restarts = [
            each.restart_count
            for each in (*(self.init_container_statuses or ()), *(self.container_statuses or ()))
            if descend(each.state, ("waiting", "reason")) == _CRASH_LOOP
        ]
        return PodTimes(begin, scheduled, changed, is_ready, max(restarts, default=0))

    def _condition(self, name: str, default: float) -> tuple[float, bool]:
        """Return the time of the last change of a condition, and whether it is true."""
        for condition in self.conditions or ():
            if condition.type == name:
                at = condition.last_transition_time
                return at.timestamp() if at else default, condition.status == "True"
        return default, False

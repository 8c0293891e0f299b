"""What nodes report of a Pod: its user, and the times since which it is in its state.

A status has only the last change of each condition. Source: ``k8s.io/api/core/v1`` (``PodStatus``).
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from policies.kubernetes.core_v1 import PodResourceClaimStatus

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


class _Linux(msgspec.Struct, frozen=True):
    uid: int | None = None


class _User(msgspec.Struct, frozen=True):
    linux: _Linux | None = None


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    user: _User | None = None
    state: _State | None = None
    restart_count: int = 0

    @property
    def is_in_loop(self) -> bool:
        waiting = self.state.waiting if self.state else None
        return waiting is not None and waiting.reason == _CRASH_LOOP


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
        users = [status.user for status in self.container_statuses or ()]
        known = [user.linux.uid for user in users if user and user.linux]
        return min((uid for uid in known if uid is not None), default=None)

    def times(self, created: str | None) -> PodTimes:
        """Return the times of a Pod that was ``created`` at this time (RFC 3339).

        A Pod without the condition Ready is not ready since it was scheduled.
        """
        begin = datetime.fromisoformat(created).timestamp() if created else 0.0
        scheduled, _ = self._condition("PodScheduled", begin)
        changed, is_ready = self._condition("Ready", scheduled)
        return PodTimes(begin, scheduled, changed, is_ready, self._loop_restarts)

    def _condition(self, name: str, default: float) -> tuple[float, bool]:
        """Return the time of the last change of a condition, and whether it is true."""
        for condition in self.conditions or ():
            if condition.type == name:
                at = condition.last_transition_time
                return at.timestamp() if at else default, condition.status == "True"
        return default, False

    @property
    def _loop_restarts(self) -> int:
        """The restarts of a container that waits in a crash loop; 0 without one."""
        statuses = [*(self.init_container_statuses or ()), *(self.container_statuses or ())]
        return max((each.restart_count for each in statuses if each.is_in_loop), default=0)

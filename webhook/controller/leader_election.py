"""Leader election: a Lease of coordination.k8s.io, held and renewed as client-go does.

Two leaders at the same time do no harm: what a leader writes is idempotent, and the resourceVersion
of a Secret decides which write came first. The Lease is there so that two replicas with different
policies, in the middle of an upgrade, do not undo each other's work.

``kubernetes.aio`` has a leader election, which is not used; docs/decisions/controllers.md says why.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from policies.kubernetes.objects import JSONObject
from webhook.kube.client import KubeApi
from webhook.kube.errors import CONFLICT, ApiError

PAUSED = "gpufence.dev/unregistered"
"""Annotation of the Lease: since when replicas must not register (``gpufence unregister``)."""


def lease_path(namespace: str, name: str = "") -> str:
    """Return the path of a Lease, or of all Leases of a namespace."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


DURATION = 15
"""Seconds. Another replica may take a Lease that was not renewed for so long."""


class LeaderElector:
    """One candidate for one Lease.

    ``clock`` returns monotonic seconds. The wall clocks of other replicas are not trusted: a Lease
    expires when it was unchanged for its duration, as in client-go.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        duration: int = DURATION,
    ) -> None:
        self.identity = identity
        self._api = api
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._duration = duration
        self._may_hold = False
        """Whether the Lease may name this replica, even if it no longer leads."""
        self._renewed_at: float | None = None
        self._seen: object = None
        self._seen_at = 0.0

    @property
    def leading(self) -> bool:
        """Whether this replica leads: for 2/3 of the duration after a renewal, as in client-go.

        Failed renewals in between do not end its leadership: no other replica leads meanwhile.
        """
        deadline = self._duration * 2 / 3
        return self._renewed_at is not None and self._clock() - self._renewed_at < deadline

    async def acquire_or_renew(self) -> bool:
        """Renew the Lease, or acquire it if it is free, and return whether this replica leads.

        Raises:
            ClusterError: the request failed. A leader leads on until its renew deadline.
        """
        start = self._clock()
        holds = await self._take()
        self._renewed_at = start if holds else None
        self._may_hold = holds
        return self.leading

    async def paused_since(self) -> str:
        """Read since when registration is paused (``gpufence unregister``); empty if it is not."""
        lease = await self._api.read(lease_path(self._namespace, self._name))
        self._observe(lease)
        return paused_since(lease)

    async def _take(self) -> bool:
        try:
            return await self._try_to_take()
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        # It changed in between: an annotation, for example. Another conflict is an error as any
        # other: it does not mean that another replica leads.
        return await self._try_to_take()

    async def _try_to_take(self) -> bool:
        path = lease_path(self._namespace, self._name)
        lease = await self._api.read(path)
        self._observe(lease)
        if lease is not None and not self._is_free(lease):
            return False
        desired = with_holder(lease, self.identity, self._api.clock.now(), self._duration)
        desired["metadata"] |= {"name": self._name, "namespace": self._namespace}
        self._may_hold = True
        if lease is None:
            self._observe(await self._api.create(lease_path(self._namespace), desired))
        else:
            self._observe(await self._api.replace(path, desired))
        return True

    async def release(self) -> None:
        """Give the Lease up, so that another replica need not wait until it expires.

        Raises:
            ClusterError: the request failed; call this again.
        """
        self._renewed_at = None
        if not self._may_hold:
            return
        path = lease_path(self._namespace, self._name)
        lease = await self._api.read(path)
        if lease is not None and _spec(lease).get("holderIdentity") == self.identity:
            # As client-go's ReleaseOnCancel writes it: without a holder, for one second.
            spec = {**_spec(lease), "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._api.replace(path, {**lease, "spec": spec})
        self._may_hold = False

    def _observe(self, lease: JSONObject | None) -> None:
        observed = None if lease is None else (_spec(lease), lease["metadata"].get("uid"))
        if observed != self._seen:
            self._seen, self._seen_at = observed, self._clock()

    def _is_free(self, lease: JSONObject) -> bool:
        spec = _spec(lease)
        if spec.get("holderIdentity") in ("", None, self.identity):
            return True
        duration = spec.get("leaseDurationSeconds") or self._duration
        return self._clock() - self._seen_at >= float(duration)


def paused_since(lease: JSONObject | None) -> str:
    """Return since when registration is paused; empty if it is not."""
    metadata = (lease or {}).get("metadata") or {}
    since: str = (metadata.get("annotations") or {}).get(PAUSED, "")
    return since


async def pause(api: KubeApi, namespace: str, name: str, since: str | None) -> bool:
    """Pause registration as of ``since``, or resume it (None). Return whether there is a Lease."""
    path = lease_path(namespace, name)
    if await api.read(path) is None:
        return False
    # A merge patch, which does not conflict with a renewal.
    await api.merge(path, {"metadata": {"annotations": {PAUSED: since}}})
    return True


def with_holder(
    lease: JSONObject | None, identity: str, now: datetime, duration: int
) -> JSONObject:
    """Return the Lease with ``identity`` as its holder; other fields stay."""
    current = lease or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    spec = _spec(current)
    time = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # MicroTime
    changes = spec.get("holderIdentity") != identity
    return {
        **current,
        "metadata": dict(current.get("metadata") or {}),
        "spec": {
            **spec,
            "holderIdentity": identity,
            "leaseDurationSeconds": duration,
            "renewTime": time,
            "acquireTime": time if changes else spec.get("acquireTime", time),
            "leaseTransitions": int(spec.get("leaseTransitions") or 0)
            + (1 if changes and lease is not None else 0),
        },
    }


def _spec(lease: JSONObject) -> JSONObject:
    return lease.get("spec") or {}

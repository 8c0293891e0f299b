"""Which replica leads: a Lease of coordination.k8s.io, held and renewed as client-go does.

Nothing breaks if two replicas believe for a moment that they lead: what a leader writes is
idempotent, and a Secret's resourceVersion settles who was first. The Lease is there so that two
replicas with different policies, in the middle of an upgrade, do not undo each other's work.

``kubernetes.aio`` has a leader election, which is not used; docs/decisions says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from webhook.kube.client import CONFLICT, JSONObject, KubeApi
from webhook.kube.errors import ApiError

PAUSED = "gpufence.dev/unregistered"
"""Annotation of the Lease: since when nobody is to register (`gpufence unregister`)."""


def lease_path(namespace: str, name: str = "") -> str:
    """Return the path of a Lease, or of all Leases of a namespace."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds. A Lease that was not renewed for ``duration`` may be taken by anybody."""

    duration: int = 15


class LeaderElector:
    """One candidate for one Lease.

    ``clock`` returns seconds that never go back: other replicas' wall clocks are not trusted, so a
    Lease expires when it was seen unchanged for its duration, as in client-go.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        timing: LeaseTiming | None = None,
    ) -> None:
        self.identity = identity
        self.leading = False
        self.paused = ""
        """Since when registering is paused by `gpufence unregister`; empty if it is not."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._seen: object = None
        self._seen_at = 0.0

    async def campaign(self) -> bool:
        """Renew the Lease, or take it if it is free; tell whether it is ours now.

        Raises:
            ClusterError: the API server could not be asked, and somebody else may lead by now.
        """
        try:
            self.leading = await self._take()
        except BaseException:
            self.leading = False
            raise
        return self.leading

    async def _take(self) -> bool:
        path = lease_path(self._namespace, self._name)
        lease = await self._api.read(path)
        self._observe(lease)
        if lease is not None and not self._is_free(lease):
            return False
        wanted = claimed(lease, self.identity, datetime.now(UTC), self._timing.duration)
        wanted["metadata"] |= {"name": self._name, "namespace": self._namespace}
        try:
            if lease is None:
                lease = await self._api.create(lease_path(self._namespace), wanted)
            else:
                lease = await self._api.replace(path, wanted)
        except ApiError as error:
            if error.status == CONFLICT:
                return False
            raise
        self._observe(lease)
        return True

    async def resign(self) -> None:
        """Give the Lease up, so that another replica need not wait until it expires.

        Raises:
            ClusterError: the API server could not be told.
        """
        if not self.leading:
            return
        self.leading = False
        path = lease_path(self._namespace, self._name)
        lease = await self._api.read(path)
        if lease is None or _spec(lease).get("holderIdentity") != self.identity:
            return
        # As client-go's ReleaseOnCancel writes it: nobody, and for a second only.
        spec = {**_spec(lease), "holderIdentity": "", "leaseDurationSeconds": 1}
        await self._api.replace(path, {**lease, "spec": spec})

    def _observe(self, lease: JSONObject | None) -> None:
        seen = None if lease is None else (_spec(lease), lease["metadata"].get("uid"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        metadata = (lease or {}).get("metadata") or {}
        self.paused = (metadata.get("annotations") or {}).get(PAUSED, "")

    def _is_free(self, lease: JSONObject) -> bool:
        spec = _spec(lease)
        if spec.get("holderIdentity") in ("", None, self.identity):
            return True
        duration = spec.get("leaseDurationSeconds") or self._timing.duration
        return self._clock() - self._seen_at >= float(duration)


async def pause(api: KubeApi, namespace: str, name: str, since: str | None) -> bool:
    """Tell replicas not to register, as of ``since``, or that they may again (None).

    Returns whether there is a Lease to tell them by.

    Raises:
        ClusterError: it could not be written.
    """
    path = lease_path(namespace, name)
    if await api.read(path) is None:
        return False
    # A merge patch, so that it does not matter who renews the Lease meanwhile.
    await api.merge(path, {"metadata": {"annotations": {PAUSED: since}}})
    return True


def claimed(lease: JSONObject | None, identity: str, now: datetime, duration: int) -> JSONObject:
    """Return the Lease as ``identity`` holds it from now on; other fields stay as they were."""
    found = lease or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    spec = _spec(found)
    time = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # MicroTime
    changes = spec.get("holderIdentity") != identity
    return {
        **found,
        "metadata": dict(found.get("metadata") or {}),
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

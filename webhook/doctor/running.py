"""Whether replicas run, are behind the Service, and one of them leads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from webhook.doctor.installation import Installation, containers_of
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.kube.endpoints import ready_endpoints
from webhook.registration.leader_election import PAUSED

# A leader renews its Lease every few seconds, for however long it may hold it.
_SILENT_SECONDS = 60
_LOGS = "kubectl logs and kubectl describe say why; see that the image can be pulled"


def check(found: Installation, now: datetime) -> Iterator[Line]:
    """Yield a line for the replicas, the endpoints and the leader.

    And one where the Deployment's Pods have no container of gpufence.
    """
    yield _replicas(found)
    if found.deployment is not None and found.deployed is None:
        names = ", ".join(each["name"] for each in containers_of(found.deployment))
        yield warn(
            "command line",
            f"no container of Deployment {found.namespace}/{found.name} is called gpufence or runs "
            f"gpufence serve; it has {names}",
            "Call that container gpufence, or name another release with --namespace and --name",
        )
    yield _endpoints(found)
    yield _leader(found, now)


def _replicas(found: Installation) -> Line:
    where = f"Deployment {found.namespace}/{found.name}"
    if "replicas" in found.refused:
        return skip("replicas", f"{where} may not be read: {found.refused['replicas']}")
    if found.deployment is None:
        return warn(
            "replicas",
            f"there is no {where}",
            "Name the release with --namespace and --name, unless the replicas run elsewhere",
        )
    wanted = found.deployment["spec"].get("replicas", 1)
    ready = (found.deployment.get("status") or {}).get("readyReplicas") or 0
    if not ready:
        cure = f"kubectl scale deployment {found.name} --replicas 2" if not wanted else _LOGS
        return fail("replicas", f"{where}: none of {wanted} is ready", cure)
    if ready < wanted:
        return warn("replicas", f"{where}: {ready} of {wanted} are ready", _LOGS)
    if wanted == 1:
        return warn("replicas", f"{where} has one replica", "Two outlast the loss of a node")
    return ok("replicas", f"all {wanted} are ready")


def _endpoints(found: Installation) -> Line:
    address = found.address
    if address is None:
        return skip("endpoints", "it is not known how gpufence is reached")
    if address.service is None:
        return skip("endpoints", f"gpufence is reached at {address.url}, without a Service")
    namespace, name, _ = address.service
    where = f"Service {namespace}/{name}"
    if "endpoints" in found.refused:
        return skip("endpoints", f"those of {where} may not be read: {found.refused['endpoints']}")
    ready = sum(len(ready_endpoints(each)) for each in found.slices)
    if not ready:
        return fail(
            "endpoints",
            f"{where} has no ready endpoint, so API servers reach nobody",
            "See that replicas are ready, and that the Service selects them",
        )
    return ok("endpoints", f"{where} has {ready} ready")


def _leader(found: Installation, now: datetime) -> Line:
    where = f"Lease {found.namespace}/{found.name}"
    if "leader" in found.refused:
        return skip("leader", f"{where} may not be read: {found.refused['leader']}")
    if found.deployed is not None and not found.deployed.registers:
        return skip("leader", "this release does not register itself, so nobody leads")
    if found.lease is None:
        return warn("leader", f"there is no {where}", "A running replica creates it")
    spec = found.lease.get("spec") or {}
    if since := (found.lease["metadata"].get("annotations") or {}).get(PAUSED):
        return warn(
            "leader",
            f"replicas were told not to register, at {since}",
            "Run gpufence unregister --undo once all is well",
        )
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return warn("leader", f"nobody holds {where}", "See that a replica runs, and its logs")
    age = (now - datetime.fromisoformat(renewed)).total_seconds()
    duration = spec.get("leaseDurationSeconds") or 15
    if age > min(2 * duration, _SILENT_SECONDS):
        return warn(
            "leader",
            f"{holder} has not renewed {where} for {age:.0f} s, and nobody else leads until it has "
            f"been silent for {duration} s",
            f"See that a replica runs, and its logs; if {holder.partition('_')[0]} will not come "
            f"back: kubectl --namespace {found.namespace} delete lease {found.name}",
        )
    return ok("leader", f"{holder.partition('_')[0]} leads")

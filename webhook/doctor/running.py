"""Whether replicas run, the Service has endpoints, and a replica leads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from webhook.doctor.installation import Installation, containers_of
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.kube.endpoints import ready_endpoints
from webhook.registration.leader_election import PAUSED

# A leader renews its Lease every few seconds, whatever the duration of the Lease.
_SILENT_SECONDS = 60
_LOGS = "Run kubectl logs and kubectl describe, and check that the nodes can pull the image"


def check(installed: Installation, now: datetime) -> Iterator[Line]:
    """Yield a line for the replicas, the endpoints and the leader.

    One more reports a Deployment whose Pods have no container of gpufence.
    """
    yield _replicas(installed)
    if installed.deployment is not None and installed.deployed is None:
        names = ", ".join(container["name"] for container in containers_of(installed.deployment))
        yield warn(
            "command line",
            f"Deployment {installed.namespace}/{installed.name} has no container named gpufence "
            f"or with the command gpufence serve; its containers: {names}",
            "Name the container gpufence, or set --namespace and --name to another release",
        )
    yield _endpoints(installed)
    yield _leader(installed, now)


def _replicas(installed: Installation) -> Line:
    where = f"Deployment {installed.namespace}/{installed.name}"
    if "replicas" in installed.forbidden:
        return skip("replicas", f"cannot read {where}: {installed.forbidden['replicas']}")
    if installed.deployment is None:
        return warn(
            "replicas",
            f"{where} does not exist",
            "Set --namespace and --name to the release, unless the replicas run outside of the "
            "cluster",
        )
    desired = installed.deployment["spec"].get("replicas", 1)
    ready = (installed.deployment.get("status") or {}).get("readyReplicas") or 0
    if not ready:
        scale = f"Run kubectl scale deployment {installed.name} --replicas 2"
        return fail("replicas", f"{where}: 0 of {desired} are ready", _LOGS if desired else scale)
    if ready < desired:
        return warn("replicas", f"{where}: {ready} of {desired} are ready", _LOGS)
    if desired == 1:
        return warn(
            "replicas", f"{where} has one replica", "Run two or more, to survive the loss of a node"
        )
    return ok("replicas", f"all {desired} are ready")


def _endpoints(installed: Installation) -> Line:
    address = installed.address
    if address is None:
        return skip("endpoints", "the address of gpufence is unknown")
    if address.service is None:
        return skip("endpoints", f"API servers use {address.url}, without a Service")
    namespace, name, _ = address.service
    where = f"Service {namespace}/{name}"
    if "endpoints" in installed.forbidden:
        return skip(
            "endpoints", f"cannot read those of {where}: {installed.forbidden['endpoints']}"
        )
    ready = sum(len(ready_endpoints(slice_)) for slice_ in installed.slices)
    if not ready:
        return fail(
            "endpoints",
            f"{where} has no ready endpoint, so API servers cannot call gpufence",
            "Check that replicas are ready, and that the Service selects them",
        )
    return ok("endpoints", f"{where} has {ready} ready {'endpoint' if ready == 1 else 'endpoints'}")


def _leader(installed: Installation, now: datetime) -> Line:
    where = f"Lease {installed.namespace}/{installed.name}"
    if "leader" in installed.forbidden:
        return skip("leader", f"cannot read {where}: {installed.forbidden['leader']}")
    if installed.deployed is not None and not installed.deployed.registers:
        return skip("leader", "this release does not register itself, so there is no leader")
    if installed.lease is None:
        return warn(
            "leader", f"{where} does not exist", "Check that a replica runs: it creates the Lease"
        )
    spec = installed.lease.get("spec") or {}
    if since := (installed.lease["metadata"].get("annotations") or {}).get(PAUSED):
        return warn(
            "leader",
            f"gpufence was unregistered at {since}",
            "Run gpufence unregister --undo after you fix the problem",
        )
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return warn("leader", f"{where} has no holder", "Check that a replica runs, and its logs")
    age = (now - datetime.fromisoformat(renewed)).total_seconds()
    duration = spec.get("leaseDurationSeconds") or 15
    if age > min(2 * duration, _SILENT_SECONDS):
        return warn(
            "leader",
            f"{holder} has not renewed {where} for {age:.0f} s; another replica leads after "
            f"{duration} s without renewal",
            f"Check that a replica runs, and its logs. If {holder.partition('_')[0]} no longer "
            f"exists, run kubectl --namespace {installed.namespace} delete lease {installed.name}",
        )
    return ok("leader", f"{holder.partition('_')[0]} is the leader")

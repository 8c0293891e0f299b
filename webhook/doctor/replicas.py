"""The checks of the replicas: whether they run, who leads, and which certificate they serve."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from certs.keypair import Names, is_overdue, leaf_problem, renewal_due
from certs.secret import Stored
from policies.kubernetes.objects import JSONObject
from webhook.doctor.installation import Installation, containers_of
from webhook.doctor.line import DoctorLine, fail, ok, skip, warn
from webhook.kube.client import ready_endpoints
from webhook.registration.leader_election import DURATION, paused_since
from webhook.registration.trust import ca_bundles

# A leader renews its Lease every few seconds, whatever the duration of the Lease.
_SILENT_SECONDS = 60
_LOGS = "Run kubectl logs and kubectl describe, and check that the nodes can pull the image"
_PLACEHOLDER = "gpufence"
"""The image's name in a checkout. The chart of a release names the published image."""
_CERTIFICATE, _BUNDLE = "certificate", "caBundle"
_RENEWAL = "Check the logs of the replicas for the reason. Do not delete the Secret"


def check_running(installed: Installation, now: datetime) -> Iterator[DoctorLine]:
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


def _replicas(installed: Installation) -> DoctorLine:
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
        cure = _image_hint(installed.deployment) or _LOGS
        return fail("replicas", f"{where}: 0 of {desired} are ready", cure if desired else scale)
    if ready < desired:
        return warn("replicas", f"{where}: {ready} of {desired} are ready", _LOGS)
    if desired == 1:
        return warn(
            "replicas", f"{where} has one replica", "Run two or more, to survive the loss of a node"
        )
    return ok("replicas", f"all {desired} are ready")


def _image_hint(deployment: JSONObject) -> str:
    """Return what to do about an image without a registry: no node can pull it."""
    for container in containers_of(deployment):
        image = str(container.get("image") or "")
        if image.partition(":")[0] == _PLACEHOLDER:
            return (
                f"The image {image} is the placeholder of a chart from a checkout. Build "
                "deploy/Dockerfile, push the image, and set image.repository to its name"
            )
    return ""


def _endpoints(installed: Installation) -> DoctorLine:
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


def _leader(installed: Installation, now: datetime) -> DoctorLine:
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
    if since := paused_since(installed.lease):
        return warn(
            "leader",
            f"gpufence was unregistered at {since}",
            "Run gpufence unregister --undo after you fix the problem",
        )
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return warn("leader", f"{where} has no holder", "Check that a replica runs, and its logs")
    age = (now - datetime.fromisoformat(renewed)).total_seconds()
    duration = spec.get("leaseDurationSeconds") or DURATION
    if age > min(2 * duration, _SILENT_SECONDS):
        return warn(
            "leader",
            f"{holder} has not renewed {where} for {age:.0f} s; another replica leads after "
            f"{duration} s without renewal",
            f"Check that a replica runs, and its logs. If {holder.partition('_')[0]} no longer "
            f"exists, run kubectl --namespace {installed.namespace} delete lease {installed.name}",
        )
    return ok("leader", f"{holder.partition('_')[0]} is the leader")


def check_certificate(
    installed: Installation, names: Names | None, now: datetime
) -> Iterator[DoctorLine]:
    """Yield the state of the Secret, and whether every configuration trusts its CAs.

    ``names`` are those that the serving certificate must have; None if they are unknown.
    """
    if _CERTIFICATE in installed.forbidden:
        problem = f"cannot read the Secret: {installed.forbidden[_CERTIFICATE]}"
        yield skip(_CERTIFICATE, problem)
    elif installed.deployed is not None and not installed.deployed.secret:
        yield skip(_CERTIFICATE, "comes from files outside of gpufence; see the trials below")
    elif installed.secret is None:
        yield fail(
            _CERTIFICATE,
            f"namespace {installed.namespace} has no Secret with CA and serving certificate",
            "Check that a replica runs: it creates the Secret",
        )
    elif installed.stored is None:
        yield fail(_CERTIFICATE, "the Secret has no CA or no serving certificate", _RENEWAL)
    else:
        yield _serving(installed.stored, names, now)
        yield _bundles(installed, installed.stored)


def _serving(stored: Stored, names: Names | None, now: datetime) -> DoctorLine:
    if problem := leaf_problem(stored.leaf, stored.authorities, names, now):
        return fail(_CERTIFICATE, f"the {problem}", _RENEWAL)
    leaf = stored.leaf.certificate
    due, end = renewal_due(leaf).isoformat(), leaf.not_valid_after_utc.isoformat()
    if is_overdue(leaf, now):
        problem = f"the renewal was due at {due}; the certificate expires at {end}"
        return warn(_CERTIFICATE, problem, _RENEWAL)
    return ok(_CERTIFICATE, f"valid until {end}; renewal is due at {due}")


def _bundles(installed: Installation, stored: Stored) -> DoctorLine:
    registered = {kind: each for kind, each in installed.configurations.items() if each}
    if not registered:
        return skip(_BUNDLE, "there is no webhook configuration")
    wrong = [
        f"{kind}, webhook {webhook.get('name')}"
        for kind, each in registered.items()
        for webhook, bundle in zip(each.get("webhooks") or (), ca_bundles(each), strict=True)
        if not stored.is_carried_by(bundle)
    ]
    if wrong:
        return fail(
            _BUNDLE,
            f"does not contain the CA of the Secret in {'; '.join(wrong)}",
            "Wait some seconds: registering replicas write it. Then check their logs, and run "
            "gpufence certs status",
        )
    return ok(_BUNDLE, "every webhook trusts the CA of the Secret")

"""Whether API servers trust the serving certificate, now and in the near future."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from datetime import datetime
from urllib.parse import urlsplit

from cryptography import x509

from certs.errors import CertificateError
from certs.keypair import as_der, is_overdue, leaf_problem, parse_certificates, renewal_due
from certs.names import Names
from certs.secret import Stored
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.kube.endpoints import ready_endpoints
from webhook.registration.configurations import Registration
from webhook.registration.trust import ca_bundles

_CHECK = "certificate"
_BUNDLE = "caBundle"
_SERVED = "served certificate"
_CONNECT_SECONDS = 3.0
_REWRITE = (
    "Wait some seconds: registering replicas write it. Then check their logs, and run gpufence "
    "certs status"
)
_RENEWAL = "Check the logs of the replicas for the reason. Do not delete the Secret"


def check(installed: Installation, names: Names | None, now: datetime) -> Iterator[Line]:
    """Yield the state of the Secret, and whether every configuration trusts it."""
    if _CHECK in installed.forbidden:
        yield skip(_CHECK, f"cannot read the Secret: {installed.forbidden[_CHECK]}")
    elif installed.deployed is not None and not installed.deployed.secret:
        yield skip(_CHECK, "comes from files outside of gpufence; see the served certificate")
    elif installed.secret is None:
        yield fail(
            _CHECK,
            f"namespace {installed.namespace} has no Secret with CA and serving certificate",
            "Check that a replica runs: it creates the Secret",
        )
    elif installed.stored is None:
        yield fail(_CHECK, "the Secret has no CA or no serving certificate", _RENEWAL)
    else:
        yield _serving(installed.stored, names, now)
        yield _bundles(installed, installed.stored)


async def check_served(installed: Installation) -> Line:
    """Connect as an API server does, and return whether it trusts the served certificate."""
    address = installed.address
    registered = [each for each in installed.configurations.values() if each]
    bundle = next((ca for each in registered for ca in ca_bundles(each) if ca), None)
    if address is None or bundle is None:
        return skip(_SERVED, "no webhook configuration has an address and a caBundle")
    places = list(_places(installed, address))
    if not places:
        return skip(_SERVED, "the Service has no ready endpoint")
    try:
        trusted = parse_certificates(bundle, _BUNDLE)
    except CertificateError as error:
        return fail(_SERVED, f"API servers cannot verify it: {error.where} {error.what}", _REWRITE)
    host = _host(address)
    unreachable = []
    for place, port in places:
        try:
            await _connect(place, port, host, trusted)
        except ssl.SSLCertVerificationError as error:
            return fail(
                _SERVED,
                f"the caBundle does not trust the certificate of {place}:{port} for {host}: "
                f"{error.verify_message}",
                "Run gpufence certs status: API servers do not trust the certificate either",
            )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            unreachable.append(f"{place}:{port} ({str(error) or 'no answer'})")
    if unreachable:
        return skip(
            _SERVED,
            f"cannot connect from here: {', '.join(unreachable)}",
            "Run gpufence doctor in a Pod of the cluster, or see the trials below",
        )
    count = len(places)
    return ok(_SERVED, f"trusted at {count} {'address' if count == 1 else 'addresses'}")


def _serving(stored: Stored, names: Names | None, now: datetime) -> Line:
    if problem := leaf_problem(stored.leaf, stored.authorities, names, now):
        return fail(_CHECK, f"the {problem}", _RENEWAL)
    leaf = parse_certificates(stored.leaf.certificate_pem, "serving certificate")[0]
    due, end = renewal_due(leaf).isoformat(), leaf.not_valid_after_utc.isoformat()
    if is_overdue(leaf, now):
        problem = f"the renewal was due at {due}; the certificate expires at {end}"
        return warn(_CHECK, problem, _RENEWAL)
    return ok(_CHECK, f"valid until {end}; renewal is due at {due}")


def _bundles(installed: Installation, stored: Stored) -> Line:
    wrong = [
        f"{kind}, webhook {webhook.get('name')}"
        for kind, configuration in installed.configurations.items()
        if configuration is not None
        for webhook, bundle in zip(
            configuration.get("webhooks") or (), ca_bundles(configuration), strict=True
        )
        if not stored.is_carried_by(bundle)
    ]
    if wrong:
        return fail(
            _BUNDLE,
            f"does not contain the CA of the Secret in {'; '.join(wrong)}",
            _REWRITE,
        )
    if not any(installed.configurations.values()):
        return skip(_BUNDLE, "there is no webhook configuration")
    return ok(_BUNDLE, "every webhook trusts the CA of the Secret")


def _places(installed: Installation, address: Registration) -> Iterator[tuple[str, int]]:
    """Yield the addresses of replicas: each ready endpoint, or the host of the URL."""
    if address.service is None:
        url = urlsplit(address.url)
        yield url.hostname or "", url.port or 443
        return
    for slice_ in installed.slices:
        ports = [port["port"] for port in slice_.get("ports") or () if port.get("port")]
        https = [p["port"] for p in slice_.get("ports") or () if p.get("name") == "https"] or ports
        for endpoint in ready_endpoints(slice_) if https else ():
            yield endpoint["addresses"][0], https[0]


def _host(address: Registration) -> str:
    """Return the name that API servers verify."""
    if address.service is not None:
        namespace, name, _ = address.service
        return f"{name}.{namespace}.svc"
    return urlsplit(address.url).hostname or ""


async def _connect(place: str, port: int, host: str, trusted: Iterable[x509.Certificate]) -> None:
    context = ssl.create_default_context(cadata=as_der(trusted))
    # API servers are less strict than Python 3.13. They trust every certificate in a bundle,
    # also an intermediate CA or the serving certificate itself (Go's crypto/x509).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(place, port, ssl=context, server_hostname=host)
    # The handshake is enough. An orderly shutdown would wait for the peer.
    writer.transport.abort()
    await writer.wait_closed()

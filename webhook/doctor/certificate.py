"""Whether API servers trust the certificate that gpufence serves with, today and for a while."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography import x509

from certs.errors import MaterialError
from certs.keypair import as_der, check_validity, parse_certificates, parse_pair
from certs.names import Names
from certs.renewal import is_issued_by, names_of, renewal_due
from certs.succession import Stored
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.kube.endpoints import ready_endpoints
from webhook.registration.configurations import Registration
from webhook.registration.drift import bundles

_CHECK = "certificate"
_BUNDLE = "caBundle"
_SERVED = "served certificate"
_CONNECT_SECONDS = 3.0
# Replicas renew within seconds of the due time: an hour later, something keeps them.
_LATE = timedelta(hours=1)
_REWRITE = (
    "Replicas that register write it within seconds: see their logs, and gpufence certs status"
)
_RESTART = "Delete nothing: see in the logs of the replicas why they do not renew it"


def check(found: Installation, names: Names | None, now: datetime) -> Iterator[Line]:
    """Yield what the Secret says, and whether every configuration trusts it."""
    if _CHECK in found.refused:
        yield skip(_CHECK, f"the Secret may not be read: {found.refused[_CHECK]}")
    elif found.deployed is not None and not found.deployed.secret:
        yield skip(_CHECK, "comes from files that somebody else writes, and is looked at as served")
    elif found.secret is None:
        yield fail(
            _CHECK,
            f"there is no Secret with authority and certificate in namespace {found.namespace}",
            "A running replica creates it: see that one runs",
        )
    elif found.stored is None:
        yield fail(_CHECK, "the Secret lacks authority or certificate", _RESTART)
    else:
        yield _leaf(found.stored, names, now)
        yield _bundles(found, found.stored)


async def check_served(found: Installation) -> Line:
    """Connect as an API server would, and say whether what is served is trusted."""
    address = found.address
    bundle = _first_bundle(found)
    if address is None or not bundle:
        return skip(_SERVED, "nothing registered says where gpufence is and whom to trust")
    places = list(_places(found, address))
    if not places:
        return skip(_SERVED, "no replica is behind the Service")
    try:
        trusted = parse_certificates(bundle, _BUNDLE)
    except MaterialError as error:
        return fail(_SERVED, f"no caller can be sure of it: {error.where} {error.what}", _REWRITE)
    host = _host(address)
    unreachable = []
    for place, port in places:
        try:
            await _connect(place, port, host, trusted)
        except ssl.SSLCertVerificationError as error:
            return fail(
                _SERVED,
                f"the caBundle does not trust what {place}:{port} serves as {host}: "
                f"{error.verify_message}",
                "API servers refuse it likewise: see gpufence certs status",
            )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            unreachable.append(f"{place}:{port} ({str(error) or 'no answer'})")
    if unreachable:
        return skip(
            _SERVED,
            f"not reached from here: {', '.join(unreachable)}",
            "Run gpufence doctor in a Pod of the cluster; what API servers can do, the trials say",
        )
    count = len(places)
    return ok(_SERVED, f"trusted, at {count} {'address' if count == 1 else 'addresses'}")


def _leaf(stored: Stored, names: Names | None, now: datetime) -> Line:
    try:
        leaf, _ = parse_pair(stored.leaf, "the serving certificate", "its private key")
        check_validity(leaf, now, "the serving certificate")
        authorities = [parse_certificates(pem, "an authority")[0] for pem in stored.authorities]
    except MaterialError as error:
        return fail(_CHECK, f"{error.where} {error.what}", _RESTART)
    if not any(is_issued_by(leaf, authority) for authority in authorities):
        return fail(_CHECK, "the serving certificate is of none of the authorities", _RESTART)
    if missing := _missing(names_of(leaf), names) if names else "":
        return fail(_CHECK, f"the serving certificate is not for {missing}", _RESTART)
    end, due = leaf.not_valid_after_utc, renewal_due(leaf)
    if now - due > _LATE:
        return warn(_CHECK, f"was due at {due.isoformat()} and ends at {end.isoformat()}", _RESTART)
    return ok(_CHECK, f"valid until {end.isoformat()}, renewed from {due.isoformat()} on")


def _missing(present: Names, wanted: Names) -> str:
    """Say which names are missing; of a URL with an IP address, clients look at those alone."""
    names: tuple[object, ...] = (
        *(name for name in wanted.dns if name not in present.dns),
        *(address for address in wanted.ip if address not in present.ip),
    )
    return ", ".join(map(str, names))


def _bundles(found: Installation, stored: Stored) -> Line:
    wrong = [
        f"{kind}, webhook {webhook.get('name')}"
        for kind, configuration in found.configurations.items()
        if configuration is not None
        for webhook, bundle in zip(
            configuration.get("webhooks") or (), bundles(configuration), strict=True
        )
        if not stored.is_carried_by(_decoded(bundle))
    ]
    if wrong:
        return fail(
            _BUNDLE,
            f"does not trust the Secret's authority in {'; '.join(wrong)}",
            _REWRITE,
        )
    if not any(found.configurations.values()):
        return skip(_BUNDLE, "there is no configuration that could carry one")
    return ok(_BUNDLE, "every webhook trusts the Secret's authority")


def _places(found: Installation, address: Registration) -> Iterator[tuple[str, int]]:
    """Yield where replicas listen: each ready endpoint, or the host of the URL."""
    if address.service is None:
        url = urlsplit(address.url)
        yield url.hostname or "", url.port or 443
        return
    for each in found.slices:
        ports = [port["port"] for port in each.get("ports") or () if port.get("port")]
        https = [p["port"] for p in each.get("ports") or () if p.get("name") == "https"] or ports
        for endpoint in ready_endpoints(each) if https else ():
            yield endpoint["addresses"][0], https[0]


def _host(address: Registration) -> str:
    """Return the name that API servers verify."""
    if address.service is not None:
        namespace, name, _ = address.service
        return f"{name}.{namespace}.svc"
    return urlsplit(address.url).hostname or ""


async def _connect(place: str, port: int, host: str, trusted: Iterable[x509.Certificate]) -> None:
    context = ssl.create_default_context(cadata=as_der(trusted))
    # As for the cluster's own CA: API servers do not require what Python 3.13 does. Whatever
    # is in a bundle is trusted by them, an intermediate CA or the certificate itself as well
    # (Go's crypto/x509).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(place, port, ssl=context, server_hostname=host)
    # The handshake has said all. To close in turn with the peer is to wait for as long as it likes.
    writer.transport.abort()
    await writer.wait_closed()


def _first_bundle(found: Installation) -> bytes:
    for configuration in found.configurations.values():
        for bundle in bundles(configuration or {}):
            if bundle:
                return _decoded(bundle)
    return b""


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""

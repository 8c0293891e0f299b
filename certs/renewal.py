"""Whether a certificate is due for renewal, as pure predicates over what is there and the time.

They do not issue certificates: the owner of the authority does, and checks again.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from certs.errors import MaterialError
from certs.keypair import KeyPair, check_validity, parse_certificates, parse_pair
from certs.names import Names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Renewal:
    """Whether a certificate is due, and the reason for logs and status pages."""

    needed: bool
    reason: str


def needs_renewal(
    leaf: KeyPair, authorities: Sequence[bytes], names: Names, now: datetime
) -> Renewal:
    """Decide whether a serving leaf must be replaced.

    `authorities` are the authorities that the leaf may come from, as PEM (a bundle counts as all of
    its certificates). In the overlap of a rotation, all that are published count, and once the new
    one signs, only the new one: that is what moves the leaves over.

    A leaf that serves more than `names` is not due: while two replicas of different configuration
    overlap in an upgrade, each would otherwise undo the other's leaf. What is no longer wanted goes
    with the next renewal.

    Raises MaterialError if `authorities` do not parse; an unreadable leaf is due.
    """
    current = _valid_authorities(authorities, now)
    try:
        certificate, _ = parse_pair(leaf, "serving certificate", "private key")
        check_validity(certificate, now, "serving certificate")
    except MaterialError as error:
        return Renewal(needed=True, reason=f"{error.where} {error.what}")
    if not any(is_issued_by(certificate, authority) for authority in current):
        issuer = certificate.issuer.rfc4514_string()
        return Renewal(
            needed=True, reason=f"serving certificate is not signed by a current CA ({issuer})"
        )
    missing = _missing_names(certificate, names)
    if missing:
        return Renewal(needed=True, reason=f"serving certificate lacks {', '.join(missing)}")
    return _spent(certificate, now)


def authority_needs_renewal(authority: KeyPair, now: datetime) -> Renewal:
    """Decide whether an authority must be succeeded by a new one.

    At 2/3 of its life like a leaf: from then on both overlap, and its leaves, which cannot outlive
    it, would become shorter and shorter. An unreadable authority is due.
    """
    try:
        certificate, _ = parse_pair(authority, "authority", "private key")
        check_validity(certificate, now, "authority")
    except MaterialError as error:
        return Renewal(needed=True, reason=f"{error.where} {error.what}")
    return _spent(certificate, now)


def renewal_due(certificate: x509.Certificate) -> datetime:
    """Return the moment at which 2/3 of the certificate's life are over."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_before_utc + life * 2 / 3


def _spent(certificate: x509.Certificate, now: datetime) -> Renewal:
    due, end = renewal_due(certificate), certificate.not_valid_after_utc
    if now >= due:
        return Renewal(
            needed=True,
            reason=f"2/3 of its life were over at {due.isoformat()}; it ends at {end.isoformat()}",
        )
    return Renewal(needed=False, reason=f"valid until {end.isoformat()}, due at {due.isoformat()}")


def _valid_authorities(authorities: Sequence[bytes], now: datetime) -> list[x509.Certificate]:
    return [
        certificate
        for pem in authorities
        for certificate in parse_certificates(pem, "authorities")
        if certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    ]


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether the authority signed the certificate; neither's validity counts here."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        # Another issuer, a key of another type, or an invalid signature.
        return False
    return True


def is_trusted_by(chain: bytes, bundle: bytes) -> bool:
    """Return whether a client that trusts ``bundle`` trusts the certificate chain; both are PEM.

    Validity does not count. As in Go's crypto/x509, a bundle may hold an intermediate CA, or the
    certificate itself.
    """
    try:
        certificates = parse_certificates(chain, "certificate")
        trusted = parse_certificates(bundle, "caBundle")
    except MaterialError:
        return False
    return any(
        certificate == issuer or is_issued_by(certificate, issuer)
        for certificate in certificates
        for issuer in trusted
    )


def names_of(certificate: x509.Certificate) -> Names:
    """Return the names in a certificate; none if it lacks the extension."""
    try:
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return Names((), ())
    dns = dict.fromkeys(name.lower() for name in present.get_values_for_type(x509.DNSName))
    ip = present.get_values_for_type(x509.IPAddress)
    addresses = (a for a in ip if isinstance(a, ipaddress.IPv4Address | ipaddress.IPv6Address))
    return Names(tuple(dns), tuple(dict.fromkeys(addresses)))


def _missing_names(certificate: x509.Certificate, names: Names) -> list[str]:
    present = names_of(certificate)
    return [
        *(name for name in names.dns if name not in present.dns),
        *(str(address) for address in names.ip if address not in present.ip),
    ]

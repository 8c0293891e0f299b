"""A certificate, its private key and its names: checks, and when a renewal is due."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs import CertificateError

# RFC 1123 section 2.1 on RFC 952: letters, digits and inner hyphens; 63 octets a label (RFC 1035
# section 2.3.4) and 253 characters a name, which is what 255 octets on the wire leave. With a last
# label of digits only, a name would count as an IP address.
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?![0-9]+\Z){_LABEL}", re.ASCII)

# The errors of the parser for invalid or unsupported certificates.
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
_ADVICE = re.compile(r"See https://\S+ for more details\. ")


def host_name(text: str) -> str:
    """Return a host name in lower case, or an IP address in its usual form.

    Wildcards are invalid here, although X.509 has them: API servers call a webhook by one known
    name, and the key of a wildcard could pose as every other webhook of the namespace.

    Raises:
        CertificateError: it is neither.
    """
    if "%" not in text:  # A scope is no part of an address in a certificate.
        with suppress(ValueError):
            return str(ipaddress.ip_address(text))
    if not _HOST_NAME.fullmatch(text):
        raise CertificateError(
            "is neither a host name (RFC 1123) nor an IP address",
            where=f"Name {text!r} for the serving certificate",
            cure="Write a name such as gpufence.gpufence.svc, or an address such as 10.0.0.7, "
            "without wildcard, scheme, port and final dot",
        )
    return text.lower()


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM of a certificate and of its private key.

    `certificate_pem` may hold a chain, the certificate of the key first, as in a Secret of type
    `kubernetes.io/tls`. The key stays out of `repr`, and so out of logs and tracebacks.
    """

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)

    @property
    def certificate(self) -> x509.Certificate:
        """The certificate of the key; raises CertificateError."""
        return parse_certificates(self.certificate_pem, "certificate")[0]


def parse_certificates(pem: bytes, where: str) -> tuple[x509.Certificate, ...]:
    """Return every certificate of a PEM bundle, at least one; raises CertificateError."""
    try:
        certificates = tuple(x509.load_pem_x509_certificates(pem))
        for certificate in certificates:
            # Parsing is lazy: look at the parts that are needed later, so that they cannot fail
            # there.
            certificate.public_key()
            _ = certificate.extensions
    except _UNREADABLE as error:
        raise CertificateError(
            f"contains no valid PEM certificate ({_first_line(error)})",
            where=where,
            cure="Put the PEM of an X.509 certificate there, from"
            ' "-----BEGIN CERTIFICATE-----" to "-----END CERTIFICATE-----"',
        ) from error
    return certificates


def parse_pair(
    pair: KeyPair, where: str = "certificate"
) -> tuple[x509.Certificate, PrivateKeyTypes]:
    """Return the first certificate and its key, which belong together; raises CertificateError."""
    certificate = parse_certificates(pair.certificate_pem, where)[0]
    problem = f"does not belong to {where}"
    try:
        key = load_pem_private_key(pair.key_pem, password=None)
        if key.public_key() == certificate.public_key():
            return certificate, key
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        # With a passphrase as well, for which a server cannot prompt.
        problem = f"contains no valid PEM private key ({_first_line(error)})"
    cure = "Replace both together, the key without a passphrase; its certificate comes first"
    raise CertificateError(problem, where="private key", cure=cure)


def certificates_in(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return every certificate of a PEM bundle; none if one cannot be read."""
    try:
        return parse_certificates(pem, "bundle")
    except CertificateError:
        return ()


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may sign others (RFC 5280, 4.2.1.9)."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether the CA signed the certificate; neither's validity counts here."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        # Another issuer, a key of another type, or an invalid signature.
        return False
    return True


def names_of(certificate: x509.Certificate) -> frozenset[str]:
    """Return the host names and the IP addresses in a certificate."""
    try:
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    dns, ip = (present.get_values_for_type(kind) for kind in (x509.DNSName, x509.IPAddress))
    return frozenset(str(name).lower() for name in (*dns, *ip))


def pair_problem(pair: KeyPair, now: datetime, what: str = "certificate") -> str:
    """Return why a pair cannot be used; empty if it is readable, belongs together and is valid."""
    try:
        certificate, _ = parse_pair(pair, what)
    except CertificateError as error:
        return f"{error.where} {error.what}"
    # Source: RFC 5280, 4.1.2.5.
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        return f"{what} expired at {end.isoformat()}"
    return "" if begin <= now else f"{what} is not valid before {begin.isoformat()}"


def leaf_problem(leaf: KeyPair, authorities: Iterable[bytes], name: str, now: datetime) -> str:
    """Return why API servers reject a serving certificate; empty if they accept it.

    `authorities` are the CAs that they trust (PEM). The certificate may have more names than the
    one by which they call; an empty `name` stands for any.
    """
    if problem := pair_problem(leaf, now, "serving certificate"):
        return problem
    certificate = leaf.certificate
    issuers = (
        ca
        for pem in authorities
        for ca in parse_certificates(pem, "CA")
        if ca.not_valid_before_utc <= now <= ca.not_valid_after_utc
    )
    if not any(is_issued_by(certificate, issuer) for issuer in issuers):
        issuer = certificate.issuer.rfc4514_string()
        return f"serving certificate is not signed by a current CA ({issuer})"
    if name and name not in names_of(certificate):
        return f"serving certificate lacks {name}"
    return ""


def renewal_due(certificate: x509.Certificate) -> datetime:
    """Return the moment at which 2/3 of the certificate's life are over.

    For a CA, too: its leaves, which cannot outlive it, would become shorter and shorter.
    """
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_before_utc + life * 2 / 3


def is_overdue(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether something prevents the renewal: replicas renew within seconds."""
    return now - renewal_due(certificate) > timedelta(hours=1)


def age_problem(certificate: x509.Certificate, now: datetime) -> str:
    """Return why the age of a certificate calls for its renewal; empty if it does not."""
    due, end = renewal_due(certificate), certificate.not_valid_after_utc
    if now < due:
        return ""
    return f"2/3 of its life were over at {due.isoformat()}; it ends at {end.isoformat()}"


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, without the library's advice to its developers."""
    line = str(error).strip().partition("\n")[0]
    return _ADVICE.sub("", line) or type(error).__name__

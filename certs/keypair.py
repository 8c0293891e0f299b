"""A certificate, its private key and its names: checks, and when a renewal is due."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs import CertificateError
from certs.handshake import is_trusted_by, server_of

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

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


@dataclass(frozen=True, slots=True)
class Names:
    """DNS names in lower case and IP addresses, without repetitions; at least one of either."""

    dns: tuple[str, ...]
    ip: tuple[IPAddress, ...] = ()

    @classmethod
    def parse(cls, dns_names: Iterable[str], ip_addresses: Iterable[str] = ()) -> Names:
        """Validate names; raises CertificateError for the first invalid one."""
        names = cls(
            dns=tuple(dict.fromkeys(_dns_name(text) for text in dns_names)),
            ip=tuple(dict.fromkeys(_ip_address(text) for text in ip_addresses)),
        )
        if not names.dns and not names.ip:
            raise CertificateError(
                "there is neither a DNS name nor an IP address",
                where="names of the serving certificate",
                cure="Specify the name by which the API server calls the webhook, such as"
                " gpufence.gpufence.svc (SERVICE.NAMESPACE.svc)",
            )
        return names

    def missing_in(self, other: Names) -> str:
        """Return which of these names the other ones lack, separated by commas."""
        dns = [name for name in self.dns if name not in other.dns]
        return ", ".join([*dns, *(str(ip) for ip in self.ip if ip not in other.ip)])

    def __str__(self) -> str:
        return ", ".join((*self.dns, *map(str, self.ip)))


def _dns_name(text: str) -> str:
    """Return a host name of RFC 1123 in lower case.

    Wildcards are invalid here, although X.509 has them: the API server calls a webhook under one
    known name, and the key of a wildcard could pose as every other webhook of the namespace.
    """
    if not _HOST_NAME.fullmatch(text):
        raise CertificateError(
            "is not a host name (RFC 1123)",
            where=f"DNS name {text!r}",
            cure="Write a name such as gpufence.gpufence.svc, without wildcard, scheme, port and"
            " final dot; give an IP address as an IP address",
        )
    return text.lower()


def _ip_address(text: str) -> IPAddress:
    where = f"IP address {text!r}"
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise CertificateError(
            "is neither an IPv4 nor an IPv6 address",
            where=where,
            cure="Write a single address, such as 10.0.0.7 or fd00::7, without port or prefix"
            " length; give a host name as a DNS name",
        ) from error
    has_scope = isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None
    if has_scope or address.is_unspecified or address.is_multicast:
        raise CertificateError(
            "is not the address of a server",
            where=where,
            cure="Give the address under which the API server reaches the webhook",
        )
    return address


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

    def is_trusted_by(self, bundle: bytes) -> bool:
        """Return whether API servers with this caBundle (PEM) trust it; time does not count."""
        try:
            return is_trusted_by(server_of(self.certificate_pem, self.key_pem), bundle)
        except OSError:  # The pair is unusable.
            return False


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
    pair: KeyPair, certificate_at: str = "certificate", key_at: str = "private key"
) -> tuple[x509.Certificate, PrivateKeyTypes]:
    """Return the first certificate and its key, checked to belong together.

    `certificate_at` and `key_at` name the two in messages (a path, a key of a Secret). Raises
    CertificateError.
    """
    certificate = parse_certificates(pair.certificate_pem, certificate_at)[0]
    key = _parse_key(pair.key_pem, key_at)
    if key.public_key() != certificate.public_key():
        raise CertificateError(
            f"does not belong to {certificate_at}",
            where=key_at,
            cure="Replace both together; in a chain, the certificate of the key comes first",
        )
    return certificate, key


def _parse_key(pem: bytes, where: str) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise CertificateError(
            "is encrypted with a passphrase, for which a server cannot prompt",
            where=where,
            cure="Store the key unencrypted and let file permissions protect it (mode 0600)",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(
            f"contains no valid PEM private key ({_first_line(error)})",
            where=where,
            cure='Put the PEM of the key there, which begins with "-----BEGIN PRIVATE KEY-----"',
        ) from error


def check_validity(certificate: x509.Certificate, now: datetime, where: str) -> None:
    """Raise CertificateError unless `now` is within the certificate's life (RFC 5280, 4.1.2.5)."""
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            f"expired at {certificate.not_valid_after_utc.isoformat()}",
            where=where,
            cure="Issue a new certificate, or correct the clock of this machine",
        )
    if now < certificate.not_valid_before_utc:
        raise CertificateError(
            f"is not valid before {certificate.not_valid_before_utc.isoformat()}",
            where=where,
            cure="Wait until then, or correct the clock of this machine",
        )


def is_certificate(pem: bytes) -> bool:
    """Return whether a PEM document holds a certificate, and none that cannot be read."""
    try:
        return bool(parse_certificates(pem, "certificate"))
    except CertificateError:
        return False


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


def pair_problem(pair: KeyPair, now: datetime, what: str = "certificate") -> str:
    """Return why a pair cannot be used; empty if it is readable, belongs together and is valid."""
    try:
        check_validity(parse_pair(pair, what)[0], now, what)
    except CertificateError as error:
        return f"{error.where} {error.what}"
    return ""


def leaf_problem(
    leaf: KeyPair, authorities: Iterable[bytes], names: Names | None, now: datetime
) -> str:
    """Return why API servers reject a serving certificate; empty if they accept it.

    `authorities` are the CAs that they trust (PEM). The certificate may have more names than
    `names`; None stands for any.
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
    missing = names.missing_in(names_of(certificate)) if names else ""
    return f"serving certificate lacks {missing}" if missing else ""


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

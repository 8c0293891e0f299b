"""A certificate and its private key as PEM, and their checks before use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from certs.errors import MaterialError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


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
class KeyPair:
    """PEM of a certificate and of its private key.

    `certificate_pem` may hold a chain, the certificate of the key first, as in a Secret of type
    `kubernetes.io/tls`. The key stays out of `repr`, and so out of logs and tracebacks.
    """

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


def parse_certificates(pem: bytes, where: str) -> tuple[x509.Certificate, ...]:
    """Return every certificate of a PEM bundle, at least one; raises MaterialError."""
    try:
        certificates = tuple(x509.load_pem_x509_certificates(pem))
        for certificate in certificates:
            # Parsing is lazy: look at the parts that are needed later, so that they cannot fail
            # there.
            certificate.public_key()
            _ = certificate.extensions
    except _UNREADABLE as error:
        raise MaterialError(
            f"contains no valid PEM certificate ({_first_line(error)})",
            where=where,
            cure="Put the PEM of an X.509 certificate there, from"
            ' "-----BEGIN CERTIFICATE-----" to "-----END CERTIFICATE-----"',
        ) from error
    return certificates


def as_der(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates in the form of `cadata` in Python's ssl.

    It accepts only ASCII, but PEM files often have comments between the certificates.
    """
    return b"".join(certificate.public_bytes(Encoding.DER) for certificate in certificates)


def parse_key(pem: bytes, where: str) -> PrivateKeyTypes:
    """Return the private key of a PEM document; raises MaterialError."""
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise MaterialError(
            "is encrypted with a passphrase, for which a server cannot prompt",
            where=where,
            cure="Store the key unencrypted and let file permissions protect it (mode 0600)",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise MaterialError(
            f"contains no valid PEM private key ({_first_line(error)})",
            where=where,
            cure='Put the PEM of the key there, which begins with "-----BEGIN PRIVATE KEY-----"',
        ) from error


def parse_pair(
    pair: KeyPair, certificate_at: str = "certificate", key_at: str = "private key"
) -> tuple[x509.Certificate, PrivateKeyTypes]:
    """Return the first certificate and its key, checked to belong together; raises MaterialError.

    `certificate_at` and `key_at` name the two in messages (a path, a key of a Secret).
    """
    certificate = parse_certificates(pair.certificate_pem, certificate_at)[0]
    key = parse_key(pair.key_pem, key_at)
    if key.public_key() != certificate.public_key():
        raise MaterialError(
            f"does not belong to {certificate_at}",
            where=key_at,
            cure="Replace both together; in a chain, the certificate of the key comes first",
        )
    return certificate, key


def check_validity(certificate: x509.Certificate, now: datetime, where: str) -> None:
    """Raise MaterialError unless `now` is within the certificate's life (RFC 5280, 4.1.2.5)."""
    if now > certificate.not_valid_after_utc:
        raise MaterialError(
            f"expired at {certificate.not_valid_after_utc.isoformat()}",
            where=where,
            cure="Issue a new certificate, or correct the clock of this machine",
        )
    if now < certificate.not_valid_before_utc:
        raise MaterialError(
            f"is not valid before {certificate.not_valid_before_utc.isoformat()}",
            where=where,
            cure="Wait until then, or correct the clock of this machine",
        )


def is_certificate(pem: bytes) -> bool:
    """Return whether there is a certificate in a PEM document."""
    try:
        return bool(parse_certificates(pem, "certificate"))
    except MaterialError:
        return False


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may sign others (RFC 5280, 4.2.1.9)."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def is_usable(pair: KeyPair, now: datetime) -> bool:
    """Return whether certificate and key are readable, belong together, and are valid."""
    try:
        check_validity(parse_pair(pair)[0], now, "certificate")
    except MaterialError:
        return False
    return True


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, without the library's advice to its developers."""
    line = str(error).strip().partition("\n")[0]
    return _ADVICE.sub("", line) or type(error).__name__

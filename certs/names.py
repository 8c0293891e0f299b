"""The names that a serving certificate is for: DNS names and IP addresses, validated."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from certs.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# RFC 1123 section 2.1 on RFC 952: letters, digits and inner hyphens; 63 octets a label (RFC 1035
# section 2.3.4) and 253 characters a name, which is what 255 octets on the wire leave.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class Names:
    """DNS names in lower case and IP addresses, without repetitions; at least one of either."""

    dns: tuple[str, ...]
    ip: tuple[IPAddress, ...] = ()

    @classmethod
    def parse(cls, dns_names: Iterable[str], ip_addresses: Iterable[str] = ()) -> Names:
        """Validate names; raises RequestError for the first invalid one."""
        names = cls(
            dns=tuple(dict.fromkeys(parse_dns_name(text) for text in dns_names)),
            ip=tuple(dict.fromkeys(parse_ip_address(text) for text in ip_addresses)),
        )
        if not names.dns and not names.ip:
            raise RequestError(
                "there is neither a DNS name nor an IP address",
                where="names of the serving certificate",
                cure="Specify the name by which the API server calls the webhook, such as"
                " gpufence.gpufence.svc (SERVICE.NAMESPACE.svc)",
            )
        return names

    def __str__(self) -> str:
        return ", ".join((*self.dns, *map(str, self.ip)))


def parse_dns_name(text: str) -> str:
    """Return a host name of RFC 1123 in lower case; raises RequestError for anything else.

    Wildcards are invalid here, although X.509 has them: the API server calls a webhook under one
    known name (SERVICE.NAMESPACE.svc, or the host of `clientConfig.url`), and an attacker with the
    key of a wildcard could pose as every other webhook of the namespace.
    """
    where = f"DNS name {text!r}"
    name = text.lower()
    if _is_ip_address(name.removeprefix("[").removesuffix("]")):
        raise RequestError(
            "is an IP address, which clients do not look for among the DNS names",
            where=where,
            cure="Give it as an IP address instead",
        )
    if "*" in name:
        raise RequestError(
            "is a wildcard, whose key could pose as every other service that it covers",
            where=where,
            cure="List the services individually, such as gpufence.gpufence.svc",
        )
    if not text.isascii():
        raise RequestError(
            "has characters outside ASCII",
            where=where,
            cure='Write it in its encoded form, which begins with "xn--"',
        )
    if name.endswith(".") and name != ".":
        raise RequestError(
            "ends with a dot, which certificates leave out",
            where=where,
            cure=f"Write it as {name.rstrip('.')!r}",
        )
    if len(name) > _NAME_LENGTH:
        raise RequestError(
            f"has {len(name)} characters, of which DNS allows {_NAME_LENGTH}",
            where=where,
            cure="Use a shorter name",
        )
    labels = name.split(".")
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise RequestError(
                f"is not a host name (RFC 1123), because of {label!r}"
                if label
                else "is not a host name (RFC 1123), because of an empty label",
                where=where,
                cure="Between the dots, use 1 to 63 letters, digits and hyphens, with no hyphen at"
                " either end, and leave out scheme, port and path",
            )
    # RFC 1123 section 2.1: a name whose last label is a number would count as an IP address.
    if labels[-1].isdigit():
        raise RequestError(
            f"ends with the number {labels[-1]!r}, which makes it look like an IP address",
            where=where,
            cure="End it with a label that is not all digits",
        )
    return name


def parse_ip_address(text: str) -> IPAddress:
    """Return the address; raises RequestError if it is invalid or cannot be connected to."""
    where = f"IP address {text!r}"
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise RequestError(
            "is neither an IPv4 nor an IPv6 address",
            where=where,
            cure="Write a single address, such as 10.0.0.7 or fd00::7, without port or prefix"
            " length; give a host name as a DNS name",
        ) from error
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise RequestError(
            "names a network interface, which a certificate cannot hold",
            where=where,
            cure=f"Leave out '%{address.scope_id}'",
        )
    if address.is_unspecified or address.is_multicast:
        raise RequestError(
            "is an address that no client can connect to",
            where=where,
            cure="Give the address under which the API server reaches the webhook",
        )
    return address


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

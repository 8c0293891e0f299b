"""The names that a serving certificate is for: DNS names and IP addresses, validated."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from certs.errors import CertificateError

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# RFC 1123 section 2.1 on RFC 952: letters, digits and inner hyphens; 63 octets a label (RFC 1035
# section 2.3.4) and 253 characters a name, which is what 255 octets on the wire leave. With a last
# label of digits only, a name would count as an IP address.
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?![0-9]+\Z){_LABEL}", re.ASCII)


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

    def and_those_of(self, other: Names) -> Names:
        """Return these names and the other ones."""
        return Names(
            tuple(dict.fromkeys((*self.dns, *other.dns))),
            tuple(dict.fromkeys((*self.ip, *other.ip))),
        )

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

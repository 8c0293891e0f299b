"""Names of a serving certificate: valid ones, invalid ones, and their messages."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import create_authority
from certs.errors import RequestError
from certs.keypair import parse_certificates
from certs.names import Names, parse_dns_name, parse_ip_address

if TYPE_CHECKING:
    from collections.abc import Callable

STORE = Store(
    [
        *parse_certificates(
            create_authority(datetime(2026, 1, 1, tzinfo=UTC)).certificate_pem, "test"
        )
    ]
)

LONGEST_LABEL = "a" * 63
LONGEST_NAME = ".".join([LONGEST_LABEL] * 3 + ["a" * 61])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpufence.gpufence.svc", "gpufence.gpufence.svc"),
        ("gpufence.gpufence.svc.cluster.local", "gpufence.gpufence.svc.cluster.local"),
        ("localhost", "localhost"),
        ("GPUFence.Example.COM", "gpufence.example.com"),
        ("3com.example", "3com.example"),
        ("7.example", "7.example"),
        ("a--b.xn--bcher-kva.example", "a--b.xn--bcher-kva.example"),
        (LONGEST_LABEL, LONGEST_LABEL),
        (LONGEST_NAME, LONGEST_NAME),
    ],
)
def test_a_host_name_is_accepted_in_lower_case(text: str, name: str) -> None:
    assert parse_dns_name(text) == name


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a host name (RFC 1123), because of an empty label"),
        (".", "is not a host name (RFC 1123), because of an empty label"),
        ("a..b", "is not a host name (RFC 1123), because of an empty label"),
        (".svc", "is not a host name (RFC 1123), because of an empty label"),
        ("gpu_fence.svc", "is not a host name (RFC 1123), because of 'gpu_fence'"),
        ("-a.svc", "is not a host name (RFC 1123), because of '-a'"),
        ("a-.svc", "is not a host name (RFC 1123), because of 'a-'"),
        ("a b", "is not a host name (RFC 1123), because of 'a b'"),
        ("a.svc\n", "is not a host name (RFC 1123), because of 'svc\\n'"),
        ("a" * 64, f"is not a host name (RFC 1123), because of {'a' * 64!r}"),
        ("https://a.svc", "is not a host name (RFC 1123), because of 'https://a'"),
        ("a.svc:9443", "is not a host name (RFC 1123), because of 'svc:9443'"),
        (LONGEST_NAME + "a", "has 254 characters, of which DNS allows 253"),
        ("a.svc.", "ends with a dot, which certificates leave out"),
        ("*.gpufence.svc", "is a wildcard, whose key could pose as every other service"),
        ("gpu*.svc", "is a wildcard, whose key could pose as every other service"),
        ("b\u00fccher.example", "has characters outside ASCII"),
        ("\u212aelvin.example", "has characters outside ASCII"),  # whose lower case is ASCII
        ("10.0.0.7", "is an IP address, which clients do not look for among the DNS names"),
        ("::1", "is an IP address, which clients do not look for among the DNS names"),
        ("[::1]", "is an IP address, which clients do not look for among the DNS names"),
        ("10.0.7", "ends with the number '7', which makes it look like an IP address"),
        ("a.256", "ends with the number '256', which makes it look like an IP address"),
    ],
)
def test_an_invalid_host_name_is_rejected_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_dns_name(text)
    assert str(caught.value).startswith(f"DNS name {text!r}: {complaint}")


def test_a_rejection_states_problem_place_and_remediation() -> None:
    with pytest.raises(RequestError) as caught:
        parse_dns_name("gpu_fence.svc:9443")
    assert str(caught.value) == (
        "DNS name 'gpu_fence.svc:9443': is not a host name (RFC 1123), because of 'gpu_fence'."
        " Between the dots, use 1 to 63 letters, digits and hyphens, with no hyphen at either end,"
        " and leave out scheme, port and path."
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", IPv4Address("127.0.0.1")),
        ("10.96.0.1", IPv4Address("10.96.0.1")),
        ("::1", IPv6Address("::1")),
        ("FD00:0::0007", IPv6Address("fd00::7")),
    ],
)
def test_an_ip_address_is_accepted(text: str, address: IPv4Address | IPv6Address) -> None:
    assert parse_ip_address(text) == address


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is neither an IPv4 nor an IPv6 address"),
        ("localhost", "is neither an IPv4 nor an IPv6 address"),
        ("10.0.0.0/8", "is neither an IPv4 nor an IPv6 address"),
        ("10.0.0.7:9443", "is neither an IPv4 nor an IPv6 address"),
        ("[::1]", "is neither an IPv4 nor an IPv6 address"),
        ("010.0.0.7", "is neither an IPv4 nor an IPv6 address"),
        ("fe80::1%eth0", "names a network interface, which a certificate cannot hold"),
        ("0.0.0.0", "is an address that no client can connect to"),  # noqa: S104 - invalid
        ("::", "is an address that no client can connect to"),
        ("224.0.0.1", "is an address that no client can connect to"),
    ],
)
def test_an_invalid_ip_address_is_rejected_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_ip_address(text)
    assert str(caught.value).startswith(f"IP address {text!r}: {complaint}")


def test_repeated_names_count_once_and_keep_their_order() -> None:
    names = Names.parse(["b.svc", "a.svc", "B.svc"], ["::1", "127.0.0.1", "0::1"])
    assert names == Names(("b.svc", "a.svc"), (IPv6Address("::1"), IPv4Address("127.0.0.1")))
    assert str(names) == "b.svc, a.svc, ::1, 127.0.0.1"


def test_a_certificate_without_names_is_rejected() -> None:
    with pytest.raises(RequestError, match="neither a DNS name nor an IP address"):
        Names.parse([], [])


def error_message(parse: Callable[[str], object], text: str) -> str | None:
    try:
        parse(text)
    except RequestError as error:
        return str(error)
    return None


@given(st.text(max_size=80) | st.from_regex(r"[A-Za-z0-9.-]{1,80}", fullmatch=True))
def test_any_text_is_rejected_or_a_valid_certificate_name(text: str) -> None:
    complaint = error_message(parse_dns_name, text)
    if complaint is not None:
        assert complaint.startswith(f"DNS name {text!r}: ")
        return
    name = parse_dns_name(text)
    assert parse_dns_name(name) == name == text.lower()
    # cryptography's path validation has its own definition of a host name: both must agree.
    PolicyBuilder().store(STORE).build_server_verifier(x509.DNSName(name))


@given(st.ip_addresses().map(str) | st.text(max_size=40))
def test_any_text_is_rejected_or_parsed_as_the_same_ip_address(text: str) -> None:
    complaint = error_message(parse_ip_address, text)
    if complaint is not None:
        assert complaint.startswith(f"IP address {text!r}: ")
        return
    address = parse_ip_address(text)
    assert parse_ip_address(str(address)) == address
    assert address.packed == ipaddress.ip_address(text).packed

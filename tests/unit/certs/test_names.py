"""Names of a serving certificate: valid ones, invalid ones, and their messages."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import create_authority
from certs.errors import CertificateError
from certs.keypair import parse_certificates
from certs.names import Names

CA = create_authority(datetime(2026, 1, 1, tzinfo=UTC)).certificate_pem
STORE = Store([*parse_certificates(CA, "test")])

LONGEST_LABEL = "a" * 63
LONGEST_NAME = ".".join([LONGEST_LABEL] * 3 + ["a" * 61])


@pytest.mark.parametrize(
    "text",
    [
        "gpufence.gpufence.svc.cluster.local",
        "localhost",
        "GPUFence.Example.COM",
        "3com.example",
        "7.example",
        "a--b.xn--bcher-kva.example",
        LONGEST_LABEL,
        LONGEST_NAME,
    ],
)
def test_a_host_name_is_accepted_in_lower_case(text: str) -> None:
    assert Names.parse([text]) == Names((text.lower(),))


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a..b", ".svc", "gpu_fence.svc", "-a.svc", "a-.svc", "a b", "a.svc\n", "a.svc."),
        *("https://a.svc", "a.svc:9443", "*.gpufence.svc", "gpu*.svc", "b\u00fccher.example"),
        "\u212aelvin.example",  # whose lower case is ASCII
        *("10.0.0.7", "::1", "[::1]", "10.0.7", "a.256", "a" * 64, LONGEST_NAME + "a"),
    ],
)
def test_an_invalid_host_name_is_rejected(text: str) -> None:
    with pytest.raises(CertificateError) as caught:
        Names.parse([text])
    assert str(caught.value).startswith(f"DNS name {text!r}: is not a host name (RFC 1123). Write ")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", IPv4Address("127.0.0.1")),
        ("::1", IPv6Address("::1")),
        ("FD00:0::0007", IPv6Address("fd00::7")),
    ],
)
def test_an_ip_address_is_accepted(text: str, address: IPv4Address | IPv6Address) -> None:
    assert Names.parse([], [text]) == Names((), (address,))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is neither an IPv4 nor an IPv6 address"),
        ("localhost", "is neither an IPv4 nor an IPv6 address"),
        ("10.0.0.0/8", "is neither an IPv4 nor an IPv6 address"),
        ("10.0.0.7:9443", "is neither an IPv4 nor an IPv6 address"),
        ("[::1]", "is neither an IPv4 nor an IPv6 address"),
        ("010.0.0.7", "is neither an IPv4 nor an IPv6 address"),
        ("fe80::1%eth0", "is not the address of a server"),
        ("0.0.0.0", "is not the address of a server"),  # noqa: S104 - invalid
        ("::", "is not the address of a server"),
        ("224.0.0.1", "is not the address of a server"),
    ],
)
def test_an_invalid_ip_address_is_rejected_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(CertificateError) as caught:
        Names.parse([], [text])
    assert str(caught.value).startswith(f"IP address {text!r}: {complaint}. ")


def test_repeated_names_count_once_and_keep_their_order() -> None:
    names = Names.parse(["b.svc", "a.svc", "B.svc"], ["::1", "127.0.0.1", "0::1"])
    assert names == Names(("b.svc", "a.svc"), (IPv6Address("::1"), IPv4Address("127.0.0.1")))
    assert str(names) == "b.svc, a.svc, ::1, 127.0.0.1"


def test_missing_names_are_listed() -> None:
    wanted = Names.parse(["a.svc", "b.svc"], ["::1", "127.0.0.1"])
    assert wanted.missing_in(Names.parse(["b.svc"], ["127.0.0.1"])) == "a.svc, ::1"
    assert wanted.missing_in(wanted) == ""


def test_a_certificate_without_names_is_rejected() -> None:
    with pytest.raises(CertificateError, match="neither a DNS name nor an IP address"):
        Names.parse([], [])


@given(st.text(max_size=80) | st.from_regex(r"[A-Za-z0-9.-]{1,80}", fullmatch=True))
def test_any_text_is_rejected_or_a_valid_certificate_name(text: str) -> None:
    try:
        [name] = Names.parse([text]).dns
    except CertificateError as error:
        assert str(error).startswith(f"DNS name {text!r}: ")  # noqa: PT017 - or there is none
        return
    assert Names.parse([name]).dns == (name,) == (text.lower(),)
    # cryptography's path validation has its own definition of a host name: both must agree.
    PolicyBuilder().store(STORE).build_server_verifier(x509.DNSName(name))


@given(st.ip_addresses().map(str) | st.text(max_size=40))
def test_any_text_is_rejected_or_parsed_as_the_same_ip_address(text: str) -> None:
    try:
        [address] = Names.parse([], [text]).ip
    except CertificateError as error:
        assert str(error).startswith(f"IP address {text!r}: ")  # noqa: PT017 - or there is none
        return
    assert address == ipaddress.ip_address(text)

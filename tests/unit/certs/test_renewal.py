"""When a certificate is due: the boundaries to the second, and what holds for all of them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import CLOCK_SKEW, create_authority, issue_leaf
from certs.errors import MaterialError
from certs.keypair import KeyPair, parse_certificates, parse_pair
from certs.names import Names
from certs.renewal import Renewal, authority_needs_renewal, needs_renewal, renewal_due

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

NAMES = Names.parse(["gpufence.gpufence.svc", "localhost"], ["127.0.0.1"])
AUTHORITY = create_authority(NOW, 365 * DAY)
OTHER_AUTHORITY = create_authority(NOW, 365 * DAY)

# A life of 90 days in all, so that 60 of them are 2/3.
BEGIN = NOW - CLOCK_SKEW
LEAF = issue_leaf(AUTHORITY, NAMES, NOW, 90 * DAY - CLOCK_SKEW)
DUE = BEGIN + 60 * DAY
END = BEGIN + 90 * DAY

AUTHORITY_OF_90_DAYS = create_authority(NOW, 90 * DAY - CLOCK_SKEW)

FRESH = "valid until 2026-05-30T11:55:00+00:00, due at 2026-04-30T11:55:00+00:00"
OVER = (
    "2/3 of its life were over at 2026-04-30T11:55:00+00:00; it ends at 2026-05-30T11:55:00+00:00"
)


def is_needed(
    now: datetime,
    leaf: KeyPair = LEAF,
    authorities: tuple[bytes, ...] = (AUTHORITY.certificate_pem,),
    names: Names = NAMES,
) -> Renewal:
    return needs_renewal(leaf, authorities, names, now)


def signed_certificate(
    subject: x509.Name, issuer: x509.Name, signer: KeyPair | None, names: Names, end: datetime
) -> KeyPair:
    """A certificate that `certs.authority` would not make; without a signer it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    signing_key = key if signer is None else parse_pair(signer)[1]
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(end)
        .add_extension(
            x509.SubjectAlternativeName(
                [*map(x509.DNSName, names.dns), *map(x509.IPAddress, names.ip)]
            ),
            critical=False,
        )
        .sign(signing_key, hashes.SHA256())
    )
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


@pytest.mark.parametrize(
    ("now", "needed", "reason"),
    [
        (BEGIN - TICK, True, "serving certificate is not valid before 2026-03-01T11:55:00+00:00"),
        (BEGIN, False, FRESH),
        (NOW, False, FRESH),
        (DUE - TICK, False, FRESH),
        (DUE, True, OVER),
        (END, True, OVER),
        (END + TICK, True, "serving certificate expired at 2026-05-30T11:55:00+00:00"),
    ],
)
def test_a_leaf_is_due_after_two_thirds_of_its_lifetime_or_if_not_valid(
    now: datetime, needed: bool, reason: str
) -> None:
    assert is_needed(now) == Renewal(needed, reason)


@pytest.mark.parametrize(
    ("now", "needed", "reason"),
    [
        (BEGIN - TICK, True, "authority is not valid before 2026-03-01T11:55:00+00:00"),
        (BEGIN, False, FRESH),
        (DUE - TICK, False, FRESH),
        (DUE, True, OVER),
        (END + TICK, True, "authority expired at 2026-05-30T11:55:00+00:00"),
    ],
)
def test_a_ca_is_due_after_two_thirds_of_its_lifetime_or_if_not_valid(
    now: datetime, needed: bool, reason: str
) -> None:
    assert authority_needs_renewal(AUTHORITY_OF_90_DAYS, now) == Renewal(needed, reason)


@pytest.mark.parametrize(
    ("authorities", "needed"),
    [
        ((AUTHORITY.certificate_pem,), False),
        ((OTHER_AUTHORITY.certificate_pem, AUTHORITY.certificate_pem), False),
        ((OTHER_AUTHORITY.certificate_pem + AUTHORITY.certificate_pem,), False),
        ((OTHER_AUTHORITY.certificate_pem,), True),
        ((), True),
    ],
    ids=["the signer", "overlap, listed", "overlap, one bundle", "only the successor", "none"],
)
def test_a_leaf_is_due_when_no_current_ca_signed_it(
    authorities: tuple[bytes, ...], needed: bool
) -> None:
    renewal = is_needed(NOW, authorities=authorities)
    assert renewal.needed is needed
    assert renewal.reason.startswith(
        "serving certificate is not signed by a current CA (CN=gpufence authority "
        if needed
        else "valid until "
    )


def test_a_leaf_is_due_if_the_current_ca_has_the_same_name_but_another_key() -> None:
    [certificate] = parse_certificates(AUTHORITY.certificate_pem, "test")
    namesake = signed_certificate(certificate.subject, certificate.subject, None, NAMES, NOW + DAY)
    assert is_needed(NOW, authorities=(namesake.certificate_pem,)).needed
    assert not is_needed(
        NOW, authorities=(namesake.certificate_pem, AUTHORITY.certificate_pem)
    ).needed


def test_a_leaf_is_due_when_its_ca_has_expired() -> None:
    short = create_authority(NOW, DAY)
    # A serving certificate that outlives its CA, as other tools issue them.
    issuer = parse_certificates(short.certificate_pem, "test")[0].subject
    leaf = signed_certificate(issuer, issuer, short, NAMES, NOW + 90 * DAY)
    assert not is_needed(NOW + DAY, leaf, (short.certificate_pem,)).needed
    renewal = is_needed(NOW + DAY + SECOND, leaf, (short.certificate_pem,))
    assert renewal.needed
    assert renewal.reason.startswith("serving certificate is not signed by a current CA")


@pytest.mark.parametrize(
    ("wanted", "needed", "reason"),
    [
        (NAMES, False, "valid until "),
        (Names.parse(["localhost"]), False, "valid until "),
        (Names.parse([], ["127.0.0.1"]), False, "valid until "),
        (
            Names.parse(["localhost", "new.svc"], ["::1"]),
            True,
            "serving certificate lacks new.svc, ::1",
        ),
        (Names.parse(["gpufence.gpufence"]), True, "serving certificate lacks gpufence.gpufence"),
        (Names.parse([], ["127.0.0.2"]), True, "serving certificate lacks 127.0.0.2"),
    ],
    ids=["the same", "fewer", "only an address", "more", "a parent", "another address"],
)
def test_a_leaf_is_due_only_if_it_lacks_a_wanted_name(
    wanted: Names, needed: bool, reason: str
) -> None:
    renewal = is_needed(NOW, names=wanted)
    assert renewal.needed is needed
    assert renewal.reason.startswith(reason)


def test_a_certificate_without_names_lacks_all_wanted_names() -> None:
    renewal = needs_renewal(AUTHORITY, [AUTHORITY.certificate_pem], NAMES, NOW)
    assert renewal == Renewal(
        needed=True,
        reason="serving certificate lacks gpufence.gpufence.svc, localhost, 127.0.0.1",
    )


def test_a_leaf_whose_key_does_not_match_is_due() -> None:
    mixed = dataclasses.replace(LEAF, key_pem=AUTHORITY.key_pem)
    assert is_needed(NOW, mixed) == Renewal(
        needed=True, reason="private key does not belong to serving certificate"
    )
    assert authority_needs_renewal(
        dataclasses.replace(AUTHORITY, key_pem=LEAF.key_pem), NOW
    ) == Renewal(needed=True, reason="private key does not belong to authority")


@pytest.mark.parametrize("damaged", ["certificate_pem", "key_pem"])
def test_an_unreadable_pair_is_due(damaged: str) -> None:
    leaf = dataclasses.replace(LEAF, **{damaged: b"\0"})
    assert is_needed(NOW, leaf).needed
    assert "contains no valid PEM" in is_needed(NOW, leaf).reason
    assert authority_needs_renewal(leaf, NOW).needed


def test_unreadable_cas_raise_material_error() -> None:
    # Nothing could be signed or trusted with them: a new certificate would not help.
    with pytest.raises(MaterialError, match="authorities: contains no valid PEM certificate"):
        is_needed(NOW, authorities=(b"",))


@pytest.mark.parametrize("lifetime", [SECOND, timedelta(minutes=1), CLOCK_SKEW, DAY, 3650 * DAY])
def test_a_new_certificate_is_not_due_with_any_lifetime(lifetime: timedelta) -> None:
    now = NOW.replace(microsecond=0)
    authority = create_authority(now, lifetime)
    assert not authority_needs_renewal(authority, now).needed
    leaf = issue_leaf(authority, NAMES, now, lifetime)
    assert not is_needed(now, leaf, (authority.certificate_pem,)).needed


MOMENTS = st.datetimes(
    min_value=(NOW - 10 * DAY).replace(tzinfo=None),
    max_value=(NOW + 400 * DAY).replace(tzinfo=None),
    timezones=st.just(UTC),
)
BUNDLES = st.lists(
    st.sampled_from([AUTHORITY.certificate_pem, OTHER_AUTHORITY.certificate_pem]), max_size=3
)
WANTED = st.sampled_from([NAMES, Names.parse(["localhost"]), Names.parse(["new.svc"])])


@settings(deadline=None)
@given(
    lifetime=st.timedeltas(min_value=SECOND, max_value=400 * DAY),
    bundle=BUNDLES,
    wanted=WANTED,
    moments=st.lists(MOMENTS, min_size=2, max_size=8),
)
def test_once_a_leaf_is_due_it_stays_due(
    lifetime: timedelta, bundle: list[bytes], wanted: Names, moments: list[datetime]
) -> None:
    leaf = issue_leaf(AUTHORITY, NAMES, NOW, lifetime)
    [certificate] = parse_certificates(leaf.certificate_pem, "test")
    due = renewal_due(certificate)
    begin = certificate.not_valid_before_utc
    timeline = sorted(
        moment
        for moment in (*moments, begin, due - TICK, due, certificate.not_valid_after_utc)
        if moment >= begin  # before its life the clock is wrong, and that passes
    )
    answers = [needs_renewal(leaf, bundle, wanted, moment).needed for moment in timeline]
    assert answers == sorted(answers)
    assert answers[-1] is True


@settings(deadline=None)
@given(lifetime=st.timedeltas(min_value=SECOND, max_value=400 * DAY), wanted=WANTED, now=MOMENTS)
def test_a_renewed_leaf_is_not_due(lifetime: timedelta, wanted: Names, now: datetime) -> None:
    now = now.replace(microsecond=0)
    authority = create_authority(now, 2 * lifetime)
    renewed = issue_leaf(authority, wanted, now, lifetime)
    assert not needs_renewal(renewed, [authority.certificate_pem], wanted, now).needed


@settings(deadline=None)
@given(now=MOMENTS, bundle=BUNDLES, wanted=WANTED)
def test_clients_accept_certificates_that_are_not_due(
    now: datetime, bundle: list[bytes], wanted: Names
) -> None:
    if needs_renewal(LEAF, bundle, wanted, now).needed:
        return
    store = Store([c for pem in bundle for c in parse_certificates(pem, "test")])
    policy = PolicyBuilder().store(store).time(now.replace(tzinfo=None))
    [certificate] = parse_certificates(LEAF.certificate_pem, "test")
    for name in wanted.dns:
        assert policy.build_server_verifier(x509.DNSName(name)).verify(certificate, [])
    for address in wanted.ip:
        assert policy.build_server_verifier(x509.IPAddress(address)).verify(certificate, [])


def test_the_decision_is_the_same_in_every_time_zone() -> None:
    zone = timezone(timedelta(hours=-8))
    assert is_needed(DUE.astimezone(zone)) == is_needed(DUE)
    assert is_needed((DUE - TICK).astimezone(zone)) == is_needed(DUE - TICK)

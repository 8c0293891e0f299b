"""A real listener on loopback whose certificate is renewed under it."""

from __future__ import annotations

import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from certificates import sign
from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.files import file_source, issue
from certs.keypair import KeyPair, Names, parse_certificates
from handshakes import NAME, Handshake, client_context
from webhook.http.tls import ServedCertificate

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)


class Files:
    """tls.crt and tls.key in a directory, and the context that watches them."""

    def __init__(self, directory: Path, pair: KeyPair, now: datetime) -> None:
        self.certificate = directory / "tls.crt"
        self.key = directory / "tls.key"
        self.write(pair)
        self.served = ServedCertificate(file_source(self.certificate, self.key))
        self.served.context()

    def write(self, pair: KeyPair) -> None:
        self.certificate.write_bytes(pair.certificate_pem)
        self.key.write_bytes(pair.key_pem)


@pytest.fixture
def files(tmp_path: Path, leaf: KeyPair, now: datetime) -> Files:
    return Files(tmp_path, leaf, now)


@pytest.fixture
def renewed(authority: KeyPair, names: Names, now: datetime) -> KeyPair:
    return issue_leaf(authority, names, now, timedelta(days=2))


def der(pair: KeyPair) -> bytes:
    return pair.certificate.public_bytes(Encoding.DER)


def test_a_renewed_leaf_is_served_and_open_connections_are_kept(
    files: Files, authority: KeyPair, leaf: KeyPair, renewed: KeyPair, now: datetime
) -> None:
    client = client_context(authority)
    before = Handshake(files.served.context(), client).finish()
    files.write(renewed)
    assert files.served.poll(now)
    after = Handshake(files.served.context(), client).finish()
    assert (before.presented, after.presented) == (der(leaf), der(renewed))
    before.server.write(b"open")
    assert before.client.read(4) == b"open"


def test_a_strict_client_accepts_every_name_of_the_served_leaf(
    files: Files, authority: KeyPair, leaf: KeyPair, names: Names
) -> None:
    # For an IP address a client sends no server name (RFC 6066 section 3).
    for name in (*names.dns, *map(str, names.ip)):
        handshake = Handshake(files.served.context(), client_context(authority), name)
        assert handshake.finish().presented == der(leaf)


def test_a_handshake_during_a_reload_completes_with_the_previous_leaf(
    files: Files, authority: KeyPair, leaf: KeyPair, renewed: KeyPair, now: datetime
) -> None:
    client = client_context(authority)
    handshake = Handshake(files.served.context(), client)
    handshake.step(handshake.client)  # the client's hello
    handshake.step(handshake.server)  # the server's answer, with the old certificate
    files.write(renewed)
    assert files.served.poll(now)
    assert handshake.finish().presented == der(leaf)
    assert Handshake(files.served.context(), client).finish().presented == der(renewed)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_leaf_with_another_key_type_is_served_after_a_reload(
    tmp_path: Path, authority: KeyPair, names: Names, now: datetime, version: ssl.TLSVersion
) -> None:
    # One SSLContext keeps a certificate per kind of key: it would go on with the ECDSA one.
    ecdsa, with_rsa = issue_leaf(authority, names, now), rsa_leaf(authority, names, now)
    files = Files(tmp_path, ecdsa, now)
    client = client_context(authority)
    client.minimum_version = client.maximum_version = version
    for pair in (with_rsa, ecdsa, with_rsa):
        files.write(pair)
        assert files.served.poll(now)
        assert Handshake(files.served.context(), client).finish().presented == der(pair)


def rsa_leaf(authority: KeyPair, names: Names, now: datetime, bits: int = 2048) -> KeyPair:
    """The certificate that cert-manager issues by default: RSA 2048."""
    [model] = parse_certificates(issue_leaf(authority, names, now).certificate_pem, "test")
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    extensions = [
        x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        if isinstance(each.value, x509.SubjectKeyIdentifier)
        else each.value
        for each in model.extensions
    ]
    begin, end = model.not_valid_before_utc, model.not_valid_after_utc
    return sign(model.subject, *extensions, begin=begin, end=end, signer=authority, key=key)


def test_a_mounted_secret_update_without_new_timestamps_is_reloaded(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair, renewed: KeyPair, now: datetime
) -> None:
    # The layout of kubelet's atomic writer (pkg/volume/util/atomic_writer.go): files link into
    # ..data, and ..data links to the newest of the directories that hold the content.
    def version(name: str, pair: KeyPair) -> None:
        (tmp_path / name).mkdir()
        for file, pem in (("tls.crt", pair.certificate_pem), ("tls.key", pair.key_pem)):
            (tmp_path / name / file).write_bytes(pem)
            os.utime(tmp_path / name / file, (0, 0))

    version("..2026_03_01", leaf)
    (tmp_path / "..data").symlink_to("..2026_03_01")
    for file in ("tls.crt", "tls.key"):
        (tmp_path / file).symlink_to(f"..data/{file}")
    served = ServedCertificate(file_source(tmp_path / "tls.crt", tmp_path / "tls.key"))
    served.context()
    assert (served.poll(now), served.problem) == (False, "")

    version("..2026_03_02", renewed)
    assert (served.poll(now), served.problem) == (False, "")
    (tmp_path / "..data_tmp").symlink_to("..2026_03_02")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    assert served.poll(now)
    assert (served.poll(now), served.problem) == (False, "")
    handshake = Handshake(served.context(), client_context(authority)).finish()
    assert handshake.presented == der(renewed)


def test_a_new_certificate_is_not_served_until_its_key_is_written(
    files: Files, authority: KeyPair, leaf: KeyPair, renewed: KeyPair, now: datetime
) -> None:
    client = client_context(authority)
    [old] = parse_certificates(leaf.certificate_pem, "test")
    files.certificate.write_bytes(renewed.certificate_pem)
    assert not files.served.poll(now)
    assert files.served.problem == (
        f"{files.key}: does not belong to {files.certificate}. Replace both together; in a chain,"
        f" the certificate of the key comes first. Still serving certificate"
        f" {old.serial_number:x}, valid until {old.not_valid_after_utc.isoformat()}."
    )
    assert Handshake(files.served.context(), client).finish().presented == der(leaf)

    files.key.write_bytes(renewed.key_pem)
    assert files.served.poll(now)
    assert Handshake(files.served.context(), client).finish().presented == der(renewed)
    assert files.served.expires == (renewed.certificate.not_valid_after_utc)


NO_CERTIFICATE = "tls.crt: contains no valid PEM certificate"
BREAKAGES: dict[str, tuple[Callable[[KeyPair], tuple[bytes, bytes]], str]] = {
    "empty": (lambda pair: (b"", pair.key_pem), NO_CERTIFICATE),
    "truncated": (lambda pair: (pair.certificate_pem[:200], pair.key_pem), NO_CERTIFICATE),
    "swapped": (lambda pair: (pair.key_pem, pair.certificate_pem), NO_CERTIFICATE),
    "missing": (lambda pair: (pair.certificate_pem, b""), "tls.key: does not exist."),
}
"""How certificate and key are written; an empty key is not."""


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_invalid_files_are_rejected_until_valid_files_are_written(
    files: Files,
    authority: KeyPair,
    leaf: KeyPair,
    renewed: KeyPair,
    now: datetime,
    breakage: str,
) -> None:
    contents, complaint = BREAKAGES[breakage]
    certificate, key = contents(renewed)
    files.certificate.write_bytes(certificate)
    files.key.write_bytes(key)
    if not key:
        files.key.unlink()
    assert not files.served.poll(now)
    assert complaint in files.served.problem
    client = client_context(authority)
    assert Handshake(files.served.context(), client).finish().presented == der(leaf)
    files.write(renewed)
    assert files.served.poll(now)
    assert Handshake(files.served.context(), client).finish().presented == der(renewed)


def test_files_restored_to_the_served_pair_cause_no_reload(
    files: Files, leaf: KeyPair, now: datetime
) -> None:
    files.key.write_bytes(b"")
    assert not files.served.poll(now)
    files.write(leaf)
    assert (files.served.poll(now), files.served.problem) == (False, "")


def test_a_leaf_is_reloaded_only_within_its_validity_period(
    files: Files, authority: KeyPair, names: Names, now: datetime
) -> None:
    files.write(issue_leaf(authority, names, now, HOUR))
    assert not files.served.poll(now + 2 * HOUR)
    assert "tls.crt: expired at " in files.served.problem

    files.write(issue_leaf(authority, names, now + HOUR))
    assert not files.served.poll(now)
    assert "tls.crt: is not valid before " in files.served.problem
    # The content is the same as at the last poll: the time alone has changed.
    assert files.served.poll(now + HOUR)


def test_certificates_that_only_openssl_rejects_are_rejected(
    files: Files, authority: KeyPair, leaf: KeyPair, names: Names, now: datetime
) -> None:
    files.write(rsa_leaf(authority, names, now, bits=1024))
    assert not files.served.poll(now)
    assert (
        f"{files.certificate} with {files.key}: cannot be loaded by OpenSSL ("
        in files.served.problem
    )
    handshake = Handshake(files.served.context(), client_context(authority)).finish()
    assert handshake.presented == der(leaf)


def test_a_missing_or_invalid_pair_is_an_error_at_startup(
    tmp_path: Path, leaf: KeyPair, now: datetime
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    with pytest.raises(CertificateError, match=r"tls\.crt: does not exist\. Check the path"):
        ServedCertificate(file_source(certificate, key)).context()
    certificate.write_bytes(leaf.certificate_pem)
    key.write_bytes(b"")
    with pytest.raises(CertificateError, match=r"tls\.key: contains no valid PEM private key"):
        ServedCertificate(file_source(certificate, key)).context()


@pytest.mark.parametrize("years", [-10, 10])
def test_a_pair_outside_its_validity_is_served_and_reported(
    files: Files, leaf: KeyPair, now: datetime, years: int
) -> None:
    """The clock of this machine may be wrong, and the clients have clocks of their own."""
    wrong = now + timedelta(days=365 * years)
    message = "tls.crt: expired at" if years > 0 else "tls.crt: is not valid before"
    assert message in files.served.invalid(wrong)
    assert files.served.invalid(now) == ""
    # The served pair is no better, so that a new one is taken up.
    files.write(issue_leaf(create_authority(now), Names.parse([NAME]), now))
    assert files.served.poll(wrong)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_use_forward_secrecy(
    files: Files, authority: KeyPair, version: ssl.TLSVersion
) -> None:
    client = client_context(authority)
    client.minimum_version = client.maximum_version = version
    handshake = Handshake(files.served.context(), client).finish()
    assert handshake.client.version() == version.name.replace("_", ".")
    cipher = handshake.client.cipher()
    assert cipher is not None
    assert cipher[0].startswith(("TLS_AES_", "TLS_CHACHA20_", "ECDHE-ECDSA-"))
    assert not cipher[0].endswith("-SHA")


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"])
def test_weak_cipher_suites_are_rejected(files: Files, authority: KeyPair, suite: str) -> None:
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(suite)
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        Handshake(files.served.context(), client).finish()


def test_tls_versions_below_1_2_and_renegotiation_are_disabled(files: Files) -> None:
    # As settings: a client of today's OpenSSL can neither speak nor do them.
    assert files.served.context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert files.served.context().options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1"), (["h2"], None), (None, None)],
)
def test_alpn_selects_only_http_1_1(
    files: Files, authority: KeyPair, offered: list[str] | None, chosen: str | None
) -> None:
    client = client_context(authority)
    if offered is not None:
        client.set_alpn_protocols(offered)
    handshake = Handshake(files.served.context(), client).finish()
    assert handshake.client.selected_alpn_protocol() == chosen
    assert handshake.server.selected_alpn_protocol() == chosen


def issue_into(directory: Path) -> None:
    issue(["localhost"], [], directory, NOW, leaf_lifetime=timedelta(days=90), force=True)


def test_each_certificate_change_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpufence")

    def logged_events() -> list[str]:
        """Poll three times, and return the events since the last call."""
        caplog.clear()
        for _ in range(3):
            served.poll(NOW)
        return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]

    issue_into(tmp_path)
    rejected: list[str] = []
    source = file_source(tmp_path / "tls.crt", tmp_path / "tls.key")
    served = ServedCertificate(source, rejected=lambda: rejected.append(served.problem))
    assert logged_events() == []
    served.context()
    assert logged_events() == []
    (tmp_path / "tls.crt").write_text("no certificate")
    assert logged_events() == ["WARNING certificate rejected"]
    (tmp_path / "tls.crt").unlink()
    assert logged_events() == ["WARNING certificate rejected"]
    # A continuing failure is reported once, and counted each time.
    assert ["does not exist" in problem for problem in rejected] == [False] * 3 + [True] * 3
    assert served.problem == rejected[-1]
    issue_into(tmp_path)
    assert logged_events() == ["INFO certificate reloaded"]
    assert served.problem == ""


def test_the_expiry_is_known_once_the_certificate_is_loaded(tmp_path: Path) -> None:
    issue_into(tmp_path)
    served = ServedCertificate(file_source(tmp_path / "tls.crt", tmp_path / "tls.key"))
    # What is missing has not expired: a replica without one yet says that it is starting.
    assert served.expires > NOW + timedelta(days=365_000)
    served.context()
    assert abs(served.expires - (NOW + timedelta(days=90))) < timedelta(seconds=2)
    assert served.chain() == (tmp_path / "tls.crt").read_bytes()

"""A certificate that is renewed while it is served, and clients that must present one."""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from certificates import named, sign
from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, parse_certificates
from handshakes import NAME, Handshake, client_context
from webhook.kube.errors import UnreachableError
from webhook.serve.http.tls import Distrust, Leaf, ServedCertificate

HOUR = timedelta(hours=1)


class Files:
    """tls.crt and tls.key in a directory, the CA of clients, and what serves them."""

    def __init__(
        self, directory: Path, pair: KeyPair, authority: KeyPair, clients: KeyPair | None = None
    ) -> None:
        self.certificate = directory / "tls.crt"
        self.key = directory / "tls.key"
        self.clients = directory / "clients.crt"
        self.authority = authority
        self.write(pair)
        if clients is not None:
            self.clients.write_bytes(clients.certificate_pem)
        self.served = ServedCertificate(
            self.certificate, self.key, None if clients is None else self.clients
        )

    def write(self, pair: KeyPair) -> None:
        self.certificate.write_bytes(pair.certificate_pem)
        self.key.write_bytes(pair.key_pem)

    def begin(self, client: ssl.SSLContext | None = None, name: str | None = NAME) -> Handshake:
        return Handshake(self.served.context, client or client_context(self.authority), name)

    def presented(self) -> bytes | None:
        """Return the certificate that a new connection gets."""
        return self.begin().finish().presented

    def rejection(self, now: datetime) -> str:
        """Return why the newest files are not served."""
        with pytest.raises(CertificateError) as raised:
            self.poll(now)
        return str(raised.value)

    def poll(self, now: datetime, distrust: Distrust | None = None) -> bool:
        return asyncio.run(self.served.poll(now, distrust))

    def connect(self, shown: KeyPair | None) -> Handshake:
        """Return a handshake of a client that presents a certificate, or none.

        Raises:
            ssl.SSLError: the server rejects it.
        """
        client = client_context(self.authority)
        if shown is not None:
            file = self.certificate.parent / "client.pem"
            file.write_bytes(shown.certificate_pem + shown.key_pem)
            client.load_cert_chain(file)
        return self.begin(client).finish()


@pytest.fixture
def files(tmp_path: Path, leaf: KeyPair, authority: KeyPair) -> Files:
    return Files(tmp_path, leaf, authority)


@pytest.fixture
def renewed(authority: KeyPair, names: list[str], now: datetime) -> KeyPair:
    return issue_leaf(authority, names, now, timedelta(days=2))


def certificate_of(pair: KeyPair) -> x509.Certificate:
    return parse_certificates(pair.certificate_pem, "test")[0]


def der(pair: KeyPair) -> bytes:
    return certificate_of(pair).public_bytes(Encoding.DER)


def test_a_renewed_leaf_is_served_and_open_connections_are_kept(
    files: Files, leaf: KeyPair, renewed: KeyPair, now: datetime
) -> None:
    before, during = files.begin().finish(), files.begin()
    during.step(during.client)  # the client's hello
    during.step(during.server)  # the server's answer, with the old certificate
    files.write(renewed)
    assert files.poll(now)
    assert during.finish().presented == der(leaf)
    assert files.presented() == der(renewed)
    before.server.write(b"open")
    assert before.client.read(4) == b"open"
    certificate = certificate_of(renewed)
    assert files.served.leaf.ends == certificate.not_valid_after_utc


def test_a_strict_client_accepts_every_name_of_the_served_leaf(
    files: Files, leaf: KeyPair, names: list[str]
) -> None:
    # For an IP address a client sends no server name (RFC 6066 section 3).
    for name in names:
        assert files.begin(name=name).finish().presented == der(leaf)


def test_a_leaf_with_another_key_type_is_served_after_a_reload(
    files: Files, authority: KeyPair, names: list[str], now: datetime, subtests: pytest.Subtests
) -> None:
    # One SSLContext keeps a certificate per kind of key: it would go on with the ECDSA one.
    ecdsa, with_rsa = issue_leaf(authority, names, now), rsa_leaf(authority, names, now)
    client = client_context(authority)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with subtests.test(version=version):
            client.maximum_version = version
            for pair in (with_rsa, ecdsa):
                files.write(pair)
                assert files.poll(now)
                assert files.begin(client).finish().presented == der(pair)


def rsa_leaf(authority: KeyPair, names: list[str], now: datetime, bits: int = 2048) -> KeyPair:
    """The certificate that cert-manager issues by default: RSA 2048."""
    model = certificate_of(issue_leaf(authority, names, now))
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
    served = ServedCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    version("..2026_03_02", renewed)
    assert not asyncio.run(served.poll(now))
    (tmp_path / "..data_tmp").symlink_to("..2026_03_02")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    assert asyncio.run(served.poll(now))
    assert not asyncio.run(served.poll(now))
    assert Handshake(served.context, client_context(authority)).finish().presented == der(renewed)


NO_CERTIFICATE = "tls.crt: contains no valid PEM certificate"


def test_invalid_files_are_rejected_until_valid_files_are_written(
    files: Files, leaf: KeyPair, renewed: KeyPair, now: datetime, subtests: pytest.Subtests
) -> None:
    new, key = renewed.certificate_pem, renewed.key_pem
    both = "Replace both together; in a chain, the certificate of the key comes first."
    for certificate, its_key, complaint in (
        (b"", key, NO_CERTIFICATE),
        (new[:200], key, NO_CERTIFICATE),
        (key, new, NO_CERTIFICATE),
        (new, b"", "tls.key: contains no valid PEM"),
        (new, leaf.key_pem, both),
    ):
        with subtests.test(complaint=complaint, certificate=certificate):
            files.write(KeyPair(certificate, its_key))
            assert complaint in files.rejection(now)
            assert files.presented() == der(leaf)
            files.write(leaf)
            assert not files.poll(now), "the served pair is back"
    files.write(renewed)
    assert files.poll(now)
    assert files.presented() == der(renewed)


def test_a_leaf_is_reloaded_only_within_its_validity_period(
    files: Files, authority: KeyPair, names: list[str], now: datetime
) -> None:
    files.write(issue_leaf(authority, names, now, HOUR))
    assert "tls.crt: expired at " in files.rejection(now + 2 * HOUR)
    files.write(issue_leaf(authority, names, now + HOUR))
    assert "tls.crt: is not valid before " in files.rejection(now)
    # The content is the same as at the last poll: the time alone has changed.
    assert files.poll(now + HOUR)


def test_certificates_that_only_openssl_rejects_are_rejected(
    files: Files, authority: KeyPair, leaf: KeyPair, names: list[str], now: datetime
) -> None:
    files.write(rsa_leaf(authority, names, now, bits=1024))
    problem = f"{files.certificate} with {files.key}: cannot be loaded by OpenSSL ("
    assert files.rejection(now).startswith(problem)
    assert files.presented() == der(leaf)


def test_a_missing_pair_is_an_error_at_startup(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt: does not exist\. Check the path"):
        ServedCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_a_pair_outside_its_validity_is_served_and_reported(
    files: Files, now: datetime, subtests: pytest.Subtests
) -> None:
    """The clock of this machine may be wrong, and the clients have clocks of their own."""
    for years, message in ((-10, "tls.crt: is not valid before"), (10, "tls.crt: expired at")):
        with subtests.test(years=years):
            wrong = now + timedelta(days=365 * years)
            assert message in files.served.invalid(wrong)
            # The served pair is no better, so that a new one is taken up.
            files.write(issue_leaf(create_authority(now), [NAME], now))
            assert files.poll(wrong)
            assert files.served.invalid(now) == ""


def test_tls_1_2_and_1_3_use_forward_secrecy(files: Files, subtests: pytest.Subtests) -> None:
    client = client_context(files.authority)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with subtests.test(version=version):
            client.maximum_version = version
            used = files.begin(client).finish().client
            assert used.version() == version.name.replace("_", ".")
            name, *_ = used.cipher() or ("none",)
            assert name.startswith(("TLS_AES_", "TLS_CHACHA20_", "ECDHE-ECDSA-"))
            assert not name.endswith("-SHA")


def test_weak_cipher_suites_are_rejected(files: Files, subtests: pytest.Subtests) -> None:
    client = client_context(files.authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for suite in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"):
        client.set_ciphers(suite)
        with subtests.test(suite), pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
            files.begin(client).finish()


def test_tls_versions_below_1_2_and_renegotiation_are_disabled(files: Files) -> None:
    # As settings: a client of today's OpenSSL can neither speak nor do them.
    assert files.served.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert files.served.context.options & ssl.OP_NO_RENEGOTIATION


def test_alpn_selects_only_http_1_1(files: Files, subtests: pytest.Subtests) -> None:
    for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["h2"], None), ([], None)):
        with subtests.test(offered=offered):
            client = client_context(files.authority)
            if offered:
                client.set_alpn_protocols(offered)
            assert files.begin(client).finish().client.selected_alpn_protocol() == chosen


# Callers that do not trust a certificate yet.


def test_a_bundle_is_trusted_as_api_servers_trust_it(
    files: Files, authority: KeyPair, leaf: KeyPair, now: datetime
) -> None:
    other = create_authority(now)
    ca, comment = authority.certificate_pem, "# von Jörg\n".encode()
    trusted = [ca, other.certificate_pem + ca, comment + ca.rstrip(), leaf.certificate_pem]
    for bundle in trusted:
        assert files.served.leaf.is_trusted_by(bundle)
    for bundle in (other.certificate_pem, b"", b"none", ca[:200]):
        assert not files.served.leaf.is_trusted_by(bundle)


def test_an_intermediate_ca_is_trusted_and_time_does_not_count(tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(days=400)
    root = create_authority(past)
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    intermediate = sign(
        named("intermediate"), constraints, begin=past, end=past + timedelta(days=300), signer=root
    )
    leaf = issue_leaf(intermediate, [NAME], past, timedelta(days=30))
    chain = KeyPair(leaf.certificate_pem + intermediate.certificate_pem, leaf.key_pem)
    files = Files(tmp_path, chain, root)
    assert files.served.leaf.is_trusted_by(intermediate.certificate_pem)
    assert files.served.leaf.serial == certificate_of(leaf).serial_number
    assert "expired at" in files.served.invalid(datetime.now(UTC))


@pytest.mark.parametrize("problem", ["the caBundle does not trust it", ""])
def test_a_new_pair_is_served_once_callers_trust_it(
    files: Files, leaf: KeyPair, renewed: KeyPair, now: datetime, problem: str
) -> None:
    async def distrust(_leaf: Leaf) -> str:
        return problem

    files.write(renewed)
    if problem:
        with pytest.raises(CertificateError, match=f"is not served yet, because {problem}"):
            files.poll(now, distrust)
        assert files.presented() == der(leaf)
        # Nothing is lost once the served one has expired.
        long_after = certificate_of(leaf).not_valid_after_utc + timedelta(days=400)
        assert files.poll(long_after, distrust)
    else:
        assert files.poll(now, distrust)
    assert files.presented() == der(renewed)


def test_a_pair_is_kept_while_the_api_server_is_out_of_reach(
    files: Files, leaf: KeyPair, renewed: KeyPair, now: datetime
) -> None:
    async def distrust(_leaf: Leaf) -> str:
        raise UnreachableError("nothing answers")

    files.write(renewed)
    with pytest.raises(UnreachableError):
        files.poll(now, distrust)
    assert files.presented() == der(leaf)


# Clients with certificates.


@pytest.fixture(scope="module")
def clients(now: datetime) -> KeyPair:
    return create_authority(now)


@pytest.fixture
def listener(tmp_path: Path, leaf: KeyPair, authority: KeyPair, clients: KeyPair) -> Files:
    """Files whose clients must present a certificate of ``clients``."""
    return Files(tmp_path, leaf, authority, clients)


FOR_CLIENTS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
FOR_SERVERS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])


def signed(
    authority: KeyPair,
    extension: x509.ExtensionType = FOR_CLIENTS,
    ends: timedelta = HOUR,
    name: str = "api-server",
) -> KeyPair:
    """Return a certificate that the CA has signed, which expires so long after now."""
    now = datetime.now(UTC)
    begin, end = now - 2 * HOUR, now + ends
    return sign(named(name), extension, begin=begin, end=end, signer=authority)


def test_a_client_without_a_certificate_of_the_ca_for_clients_is_rejected(
    listener: Files, clients: KeyPair, authority: KeyPair, subtests: pytest.Subtests
) -> None:
    for shown, problem in (
        (None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (signed(authority), "certificate verify failed"),
        (signed(create_authority(datetime.now(UTC))), "verify failed"),
        (signed(clients, ends=-HOUR), "certificate has expired"),
        (signed(clients, FOR_SERVERS), r"(?i)unsuitable certificate purpose"),
    ):
        with subtests.test(problem=problem), pytest.raises(ssl.SSLError, match=problem):
            listener.connect(shown)


def test_client_certificates_require_tls_1_3_without_session_resumption(
    listener: Files, authority: KeyPair, clients: KeyPair
) -> None:
    handshake = listener.connect(signed(clients))
    assert handshake.client.session is None or not handshake.client.session.has_ticket
    old = client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        listener.begin(old).finish()


def test_the_client_ca_is_rotated_without_a_new_listener(
    listener: Files, clients: KeyPair, now: datetime
) -> None:
    successor = create_authority(now)
    old, new = signed(clients), signed(successor)
    comment = "# von Jörg\n".encode()
    listener.clients.write_bytes(clients.certificate_pem + comment + successor.certificate_pem)
    assert listener.poll(now)
    for pair in (old, new):
        listener.connect(pair)
    listener.clients.write_bytes(successor.certificate_pem)
    assert listener.poll(now)
    assert not listener.poll(now)
    listener.connect(new)
    with pytest.raises(ssl.SSLCertVerificationError):
        listener.connect(old)


def test_an_invalid_client_ca_is_rejected_and_the_previous_ca_is_kept(
    listener: Files, clients: KeyPair, now: datetime
) -> None:
    listener.clients.write_text("no certificate")
    problem = listener.rejection(now)
    assert problem.startswith(f"{listener.clients}: contains no valid PEM certificate")
    listener.connect(signed(clients))
    with pytest.raises(ssl.SSLError):
        listener.connect(None)


def test_an_invalid_client_ca_is_an_error_at_startup(
    tmp_path: Path, leaf: KeyPair, authority: KeyPair, clients: KeyPair
) -> None:
    with pytest.raises(
        CertificateError, match="contains a certificate that is not a CA certificate"
    ):
        Files(tmp_path, leaf, authority, signed(clients))

"""Clients that must present a certificate, and a rotation of the CA that signed it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from certificates import named, sign
from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.files import file_source
from certs.keypair import KeyPair, Names
from handshakes import Handshake, client_context
from webhook.http.tls import ServedCertificate

FOR_CLIENTS = ExtendedKeyUsageOID.CLIENT_AUTH
FOR_SERVERS = ExtendedKeyUsageOID.SERVER_AUTH
HOUR = timedelta(hours=1)


class Listener:
    """A serving context with its files, which requires client certificates of `authority`."""

    def __init__(
        self, directory: Path, serving: KeyPair, authority: KeyPair, now: datetime
    ) -> None:
        (directory / "tls.crt").write_bytes(serving.certificate_pem)
        (directory / "tls.key").write_bytes(serving.key_pem)
        self.clients = directory / "clients.crt"
        self.clients.write_bytes(authority.certificate_pem)
        source = file_source(directory / "tls.crt", directory / "tls.key")
        self.served = ServedCertificate(source, self.clients)
        self.served.context()
        self._directory = directory

    def connect(self, trusting: KeyPair, shown: KeyPair | None) -> Handshake:
        """Return what comes of a client's handshake, which shows a certificate, or none.

        Raises:
            ssl.SSLError: the server rejects the handshake.
        """
        client = client_context(trusting)
        if shown is not None:
            file = self._directory / "client.pem"
            file.write_bytes(shown.certificate_pem + shown.key_pem)
            client.load_cert_chain(file)
        return Handshake(self.served.context(), client).finish()


def client_pair(
    authority: KeyPair, purpose: ObjectIdentifier = FOR_CLIENTS, ends: timedelta = HOUR
) -> KeyPair:
    """Return a client certificate of the CA, which expires so long after now."""
    return signed(authority, "api-server", x509.ExtendedKeyUsage([purpose]), ends)


def signed(
    authority: KeyPair, name: str, extension: x509.ExtensionType, ends: timedelta = HOUR
) -> KeyPair:
    """Return a certificate that the CA has signed."""
    now = datetime.now(UTC)
    return sign(named(name), extension, begin=now - 2 * HOUR, end=now + ends, signer=authority)


@pytest.fixture(scope="module")
def clients(now: datetime) -> KeyPair:
    return create_authority(now)


@pytest.fixture
def listener(tmp_path: Path, leaf: KeyPair, clients: KeyPair, now: datetime) -> Listener:
    return Listener(tmp_path, leaf, clients, now)


def test_a_client_with_a_certificate_of_the_ca_is_accepted(
    listener: Listener, authority: KeyPair, clients: KeyPair
) -> None:
    handshake = listener.connect(authority, client_pair(clients))
    assert handshake.server.version() == "TLSv1.3"


def test_a_client_without_a_certificate_is_rejected(listener: Listener, authority: KeyPair) -> None:
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        listener.connect(authority, None)


def test_a_client_of_another_ca_is_rejected(
    listener: Listener, authority: KeyPair, now: datetime
) -> None:
    for other in (authority, create_authority(now)):
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
            listener.connect(authority, client_pair(other))


def test_a_client_with_an_expired_certificate_is_rejected(
    listener: Listener, authority: KeyPair, clients: KeyPair
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        listener.connect(authority, client_pair(clients, ends=-HOUR))


def test_a_client_with_a_server_certificate_is_rejected(
    listener: Listener, authority: KeyPair, clients: KeyPair, names: Names, now: datetime
) -> None:
    for pair in (client_pair(clients, FOR_SERVERS), issue_leaf(clients, names, now)):
        with pytest.raises(
            ssl.SSLCertVerificationError, match=r"(?i)unsuitable certificate purpose"
        ):
            listener.connect(authority, pair)


def test_client_certificates_require_tls_1_3_without_session_resumption(
    listener: Listener, authority: KeyPair, clients: KeyPair
) -> None:
    handshake = listener.connect(authority, client_pair(clients))
    assert handshake.client.session is None or not handshake.client.session.has_ticket
    old = client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        Handshake(listener.served.context(), old).finish()


def test_the_client_ca_is_rotated_without_a_new_listener(
    listener: Listener, authority: KeyPair, clients: KeyPair, now: datetime
) -> None:
    successor = create_authority(now)
    old, new = client_pair(clients), client_pair(successor)
    listener.clients.write_bytes(clients.certificate_pem + successor.certificate_pem)
    assert listener.served.poll(now)
    for pair in (old, new):
        listener.connect(authority, pair)
    listener.clients.write_bytes(successor.certificate_pem)
    assert listener.served.poll(now)
    assert (listener.served.poll(now), listener.served.problem) == (False, "")
    listener.connect(authority, new)
    with pytest.raises(ssl.SSLCertVerificationError):
        listener.connect(authority, old)


def test_comments_between_cas_are_ignored(
    listener: Listener, authority: KeyPair, clients: KeyPair, now: datetime
) -> None:
    successor = create_authority(now)
    pems = [clients.certificate_pem, successor.certificate_pem]
    listener.clients.write_bytes(b"".join("# von Jörg\n".encode() + pem for pem in pems))
    assert listener.served.poll(now)
    for pair in (clients, successor):
        listener.connect(authority, client_pair(pair))


def test_an_invalid_client_ca_is_rejected_and_the_previous_ca_is_kept(
    listener: Listener, authority: KeyPair, clients: KeyPair, now: datetime
) -> None:
    listener.clients.write_text("no certificate")
    assert not listener.served.poll(now)
    assert listener.served.problem.startswith(
        f"{listener.clients}: contains no valid PEM certificate"
    )
    listener.connect(authority, client_pair(clients))
    with pytest.raises(ssl.SSLError):
        listener.connect(authority, None)


def test_an_invalid_or_missing_client_ca_is_an_error_at_startup(
    tmp_path: Path, leaf: KeyPair, clients: KeyPair, now: datetime
) -> None:
    with pytest.raises(
        CertificateError, match="contains a certificate that is not a CA certificate"
    ):
        Listener(tmp_path, leaf, client_pair(clients), now)
    source = file_source(tmp_path / "tls.crt", tmp_path / "tls.key")
    with pytest.raises(CertificateError, match="does not exist"):
        ServedCertificate(source, tmp_path / "none.crt").context()


def test_a_client_of_a_trusted_intermediate_ca_is_accepted(
    tmp_path: Path, leaf: KeyPair, authority: KeyPair, now: datetime
) -> None:
    root = create_authority(now)
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    intermediate = signed(root, "intermediate", constraints)
    listener = Listener(tmp_path, leaf, intermediate, now)
    listener.connect(authority, client_pair(intermediate))
    with pytest.raises(ssl.SSLCertVerificationError):
        listener.connect(authority, client_pair(root))

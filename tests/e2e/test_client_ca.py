"""Reviews from API servers only: the client certificate that a real API server presents."""

from __future__ import annotations

import http.client
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane import pki
from controlplane.api import ApiError
from controlplane.client_certificate import configure
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.poll import until
from controlplane.ports import free_ports
from controlplane.webhooks import register, unregister
from release.load import GPU_POD

REJECTED = (ConnectionError, ssl.SSLError)
"""The errors of a connection that the server closes; which one depends on how far the client is."""


@dataclass
class Guarded:
    """A control plane, and a gpufence that takes reviews only from clients of `clients`."""

    cluster: ControlPlane
    server: Server
    clients: pki.Authority
    directory: Path
    port: int

    def status(self, pair: tuple[Path, Path] | None) -> int:
        """Return the HTTP status that a client gets who shows the pair, or nothing.

        Raises:
            ConnectionError, ssl.SSLError: the server closes the connection before the request.
        """
        context = ssl.create_default_context(cadata=self.server.authority.decode())
        if pair is not None:
            context.load_cert_chain(*pair)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=context, timeout=10
        )
        try:
            connection.request("GET", "/validate")
            return connection.getresponse().status
        finally:
            connection.close()

    def create(self) -> Any:
        return self.cluster.api.request("POST", "/api/v1/namespaces/default/pods", GPU_POD)


@pytest.fixture(scope="module")
def guarded(
    found_binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("client-ca")
    clients = pki.Authority(directory, "api-servers")
    [port] = free_ports(1)
    shows = configure(directory, clients.client("api-server"), f"127.0.0.1:{port}")
    flags = ["--port", str(port), "--client-ca-file", str(clients.certificate)]
    with (
        ControlPlane(directory / "cluster", found_binaries, apiserver_flags=[shows]) as cluster,
        Server(directory / "server", flags) as server,
    ):
        register(cluster, server.url, server.authority)
        yield Guarded(cluster, server, clients, directory, port)
        unregister(cluster)


def test_an_api_server_with_a_trusted_client_certificate_is_served(guarded: Guarded) -> None:
    created = guarded.create()
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in created[
        "spec"
    ]["tolerations"]


def test_probes_and_metrics_need_no_certificate(guarded: Guarded) -> None:
    for path in ("healthz", "readyz", "metrics"):
        url = f"http://127.0.0.1:{guarded.server.metrics_port}/{path}"
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.status == 200


def test_a_client_with_a_trusted_certificate_gets_an_http_response(guarded: Guarded) -> None:
    assert guarded.status(guarded.clients.client("another-api-server")) == 405


def test_clients_without_a_certificate_of_the_ca_are_rejected(guarded: Guarded) -> None:
    elsewhere = guarded.directory / "foreign"
    elsewhere.mkdir()
    refused = {
        "none": None,
        "expired": guarded.clients.client("expired", life=timedelta(seconds=-10)),
        "foreign": pki.Authority(elsewhere, "api-servers").client("api-server"),
        "for servers": guarded.clients.server("not-a-client", "127.0.0.1"),
    }
    for what, pair in refused.items():
        # In TLS 1.3 a client has finished its handshake before it hears what the server thinks;
        # and Python's event loops close the connection instead of saying why.
        with pytest.raises(REJECTED):
            guarded.status(pair)
        print(f"\nrefused: {what}")


def test_the_api_server_is_rejected_while_another_client_ca_is_trusted(
    guarded: Guarded,
) -> None:
    trusted = guarded.clients.certificate.read_bytes()
    elsewhere = guarded.directory / "successor"
    elsewhere.mkdir()
    successor = pki.Authority(elsewhere, "api-servers")

    def refusal() -> str:
        # Its connections from before live on: the API server is to make new ones.
        guarded.cluster.apiserver.kill()
        guarded.cluster.start_apiserver()
        try:
            guarded.create()
        except ApiError as error:
            return str(error)
        return ""

    def takes(pair: tuple[Path, Path]) -> bool:
        try:
            return guarded.status(pair) == 405
        except REJECTED:
            return False

    guarded.clients.certificate.write_bytes(successor.certificate.read_bytes())
    until(lambda: takes(successor.client("next")), "the new authority to be trusted")
    message = refusal()
    print(f"\n{message}")
    assert 'failed calling webhook "mutate.gpufence.dev"' in message
    # What a closed connection is called depends on how far the API server was.
    closed = ("connection reset by peer", "EOF", "broken pipe", "server closed idle connection")
    assert any(words in message for words in closed)
    guarded.clients.certificate.write_bytes(trusted)
    until(lambda: takes(guarded.clients.client("again")), "the old authority to be trusted")
    guarded.create()

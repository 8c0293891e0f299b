"""The output of `gpufence certs status` for a Secret that no replica can serve."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, parse_certificates
from certs.names import Names
from certs.secret import Stored, read_secret, write_secret
from fake_apiserver import FakeKubeApi
from policies.shipped import shipped_policy
from webhook.cel.configurations import Registration, configurations
from webhook.cli.commands.certs import publish_next, shown
from webhook.registration.certificates import SecretName
from webhook.registration.registrar import KINDS

NOW = datetime.now(UTC)
SECRET = SecretName("fence", "certificates")
AUTHORITY, OTHER = create_authority(NOW), create_authority(NOW)
NAMES = Names.parse(["gpufence.fence.svc"])
LEAF = issue_leaf(AUTHORITY, NAMES, NOW)


def cluster(stored: Stored) -> FakeKubeApi:
    """Return one with this Secret, and configurations with its CA."""
    api = FakeKubeApi()
    api.objects[SECRET.path] = write_secret(stored, SECRET.name, SECRET.namespace, None)
    registration = Registration(
        service=("fence", "gpufence", 443),
        ca_bundle=base64.b64encode(AUTHORITY.certificate_pem).decode(),
    )
    for configuration in configurations(shipped_policy(), registration):
        api.objects[f"{KINDS[configuration['kind']]}/gpufence"] = configuration
    return api


BROKEN = {
    "a certificate of another CA": (
        Stored(AUTHORITY, issue_leaf(OTHER, NAMES, NOW)),
        "problem: serving certificate is not signed by a current CA",
    ),
    "a key of another certificate": (
        Stored(AUTHORITY, KeyPair(LEAF.certificate_pem, OTHER.key_pem)),
        "problem: private key does not belong to serving certificate",
    ),
    "an invalid CA certificate": (
        Stored(KeyPair(b"none", AUTHORITY.key_pem), LEAF),
        "MutatingWebhookConfiguration gpufence, pods.gpufence.dev: DOES NOT TRUST the CA",
    ),
}


async def test_a_certificate_that_the_webhook_configurations_trust_is_healthy() -> None:
    api = cluster(Stored(AUTHORITY, LEAF))
    assert await shown(api, SECRET.namespace, SECRET.name, "gpufence")


@pytest.mark.parametrize(("stored", "expected"), BROKEN.values(), ids=BROKEN)
async def test_an_untrusted_certificate_is_reported(
    stored: Stored, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not await shown(cluster(stored), SECRET.namespace, SECRET.name, "gpufence")
    assert expected in capsys.readouterr().out


async def test_expiry_is_determined_by_the_clock_of_the_api_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The clock of the machine with the command line may be wrong."""
    api = cluster(Stored(AUTHORITY, LEAF))
    api.now = NOW + timedelta(days=400)
    assert not await shown(api, SECRET.namespace, SECRET.name, "gpufence")
    assert " EXPIRED, " in capsys.readouterr().out


async def test_the_next_ca_is_valid_by_the_clock_of_the_api_server() -> None:
    api = cluster(Stored(AUTHORITY, LEAF))
    api.now = NOW - timedelta(days=400)
    api.objects[SECRET.path]["metadata"]["resourceVersion"] = "1"
    await publish_next(api, SECRET.namespace, SECRET.name, timedelta(days=10))
    stored = read_secret(api.objects[SECRET.path])
    assert stored is not None
    [certificate] = parse_certificates(stored.next_certificate, "test")
    assert certificate.not_valid_before_utc < api.now < certificate.not_valid_after_utc


async def test_a_concurrent_renewal_does_not_stop_a_rotation() -> None:
    api = cluster(Stored(AUTHORITY, LEAF))
    collection, _, _ = SECRET.path.rpartition("/")
    api.server.put(collection, api.objects[SECRET.path])
    renewed = write_secret(
        Stored(AUTHORITY, issue_leaf(AUTHORITY, NAMES, NOW)), SECRET.name, SECRET.namespace, None
    )

    async def renew() -> None:
        api.server.put(collection, renewed)

    api.between(renew)
    await publish_next(api, SECRET.namespace, SECRET.name, timedelta(days=10))
    stored = read_secret(api.objects[SECRET.path])
    assert stored is not None
    assert stored.next is not None
    assert stored.leaf.certificate_pem != LEAF.certificate_pem

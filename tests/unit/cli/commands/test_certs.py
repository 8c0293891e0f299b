"""`gpufence certs`: files that are issued, and the state of those that replicas serve."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, Names
from certs.secret import authority_data, serving_data, with_data
from fake_apiserver import FakeKubeApi
from policies.shipped import shipped_policy
from webhook.controller.certificates import SecretName
from webhook.controller.registrar import KINDS
from webhook.controller.text.objects import Registration, configurations
from webhook.documents.document import InputError
from webhook.tools.cli.commands.certs import shown

# The Secrets.

NOW = datetime.now(UTC)
SERVING, CA = SecretName("fence", "serving"), SecretName("fence", "ca")
AUTHORITY, OTHER = create_authority(NOW), create_authority(NOW)
NAMES = Names.parse(["gpufence.fence.svc"])
LEAF = issue_leaf(AUTHORITY, NAMES, NOW)


def cluster(leaf: KeyPair, signer: KeyPair, authority: KeyPair | None = None) -> FakeKubeApi:
    """Return one with these Secrets, and configurations with the first CA."""
    api = FakeKubeApi()
    api.objects[SERVING.path] = with_data({"metadata": {}}, serving_data(leaf, signer))
    if authority is not None:
        api.objects[CA.path] = with_data({"metadata": {}}, authority_data(authority))
    registration = Registration(
        service=("fence", "gpufence", 443),
        ca_bundle=base64.b64encode(AUTHORITY.certificate_pem).decode(),
    )
    for configuration in configurations(shipped_policy(), registration):
        api.objects[f"{KINDS[configuration['kind']]}/gpufence"] = configuration
    return api


async def test_a_certificate_that_the_webhook_configurations_trust_is_healthy(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for authority in (None, AUTHORITY):
        with subtests.test(authority=authority):
            assert await shown(cluster(LEAF, AUTHORITY, authority), SERVING, CA, "gpufence")
            assert "next CA" not in capsys.readouterr().out


async def test_an_untrusted_certificate_is_reported(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    of_other = issue_leaf(OTHER, NAMES, NOW)
    unsigned = "problem: serving certificate is not signed by a current CA"
    for api, expected in (
        (cluster(of_other, AUTHORITY), unsigned),
        (cluster(LEAF, KeyPair(b"none", AUTHORITY.key_pem)), unsigned),
        (
            cluster(KeyPair(LEAF.certificate_pem, OTHER.key_pem), AUTHORITY),
            "problem: private key does not belong to serving certificate",
        ),
        (
            cluster(of_other, OTHER),
            "MutatingWebhookConfiguration gpufence, pods.gpufence.dev: DOES NOT TRUST the certific",
        ),
    ):
        with subtests.test(expected=expected):
            assert not await shown(api, SERVING, CA, "gpufence")
            assert expected in capsys.readouterr().out


async def test_the_ca_that_signs_next_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert await shown(cluster(LEAF, AUTHORITY, OTHER), SERVING, CA, "gpufence")
    assert f"next CA: {OTHER.certificate.serial_number:x}, " in capsys.readouterr().out


async def test_a_missing_secret_is_an_error() -> None:
    with pytest.raises(InputError, match="Secret fence/serving does not exist"):
        await shown(FakeKubeApi(), SERVING, CA, "gpufence")


async def test_expiry_is_determined_by_the_clock_of_the_api_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The clock of the machine with the command line may be wrong."""
    api = cluster(LEAF, AUTHORITY, AUTHORITY)
    api.now = NOW + timedelta(days=400)
    assert not await shown(api, SERVING, CA, "gpufence")
    assert " EXPIRED, " in capsys.readouterr().out

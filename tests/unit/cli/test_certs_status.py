"""The output of `gpufence certs status` for a Secret that no replica can serve."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair
from certs.names import Names
from certs.secret import write_secret
from certs.succession import Stored
from fake_apiserver import FakeKubeApi
from policies.document.shipped import shipped_policy
from webhook.cli.commands.certs_secret import shown
from webhook.registration.certificates import SecretName
from webhook.registration.configurations import Registration, configurations
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
    for made in configurations(shipped_policy(), registration):
        api.objects[f"{KINDS[made['kind']]}/gpufence"] = made
    return api


BROKEN = {
    "a certificate of another authority": (
        Stored(AUTHORITY, issue_leaf(OTHER, NAMES, NOW)),
        "certificate: not signed by any of the CAs",
    ),
    "a key of another certificate": (
        Stored(AUTHORITY, KeyPair(LEAF.certificate_pem, OTHER.key_pem)),
        "certificate: its private key: does not belong to the certificate. Replace both together",
    ),
    "an authority that is none": (
        Stored(KeyPair(b"none", AUTHORITY.key_pem), LEAF),
        "MutatingWebhookConfiguration gpufence, pods.gpufence.dev: DOES NOT TRUST the CA",
    ),
}


async def test_a_pair_that_the_configurations_trust_is_well() -> None:
    api = cluster(Stored(AUTHORITY, LEAF))
    assert await shown(api, SECRET.namespace, SECRET.name, "gpufence", NOW)


@pytest.mark.parametrize(("stored", "said"), BROKEN.values(), ids=BROKEN)
async def test_what_nobody_can_trust_is_said(
    stored: Stored, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not await shown(cluster(stored), SECRET.namespace, SECRET.name, "gpufence", NOW)
    assert said in capsys.readouterr().out

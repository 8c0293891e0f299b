"""Whether API servers trust a certificate, by the webhook configurations."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certificates import write_pairs
from certs.authority import create_authority, issue_leaf
from fake_apiserver import FakeKubeApi
from webhook.kube.errors import ApiError, ClusterError, UnreachableError
from webhook.serve.callers import Callers
from webhook.serve.http.tls import Leaf, ServedCertificate

API = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = (
    f"{API}/{kind}webhookconfigurations/gpufence" for kind in ("mutating", "validating")
)
NOW = datetime.now(UTC)
OWN, OTHER = (create_authority(NOW) for _ in range(2))


@pytest.fixture
def leaf(tmp_path: Path) -> Leaf:
    write_pairs(tmp_path, OWN, issue_leaf(OWN, ["localhost"], NOW))
    return ServedCertificate(tmp_path / "tls.crt", tmp_path / "tls.key").leaf


def configuration(*bundles: bytes | None, name: str = "pods.gpufence.dev") -> dict[str, object]:
    webhooks = [
        {"name": name, "clientConfig": {"caBundle": base64.b64encode(each).decode()}}
        if each is not None
        else {"name": name, "clientConfig": {}}
        for each in bundles
    ]
    return {"metadata": {"name": "gpufence"}, "webhooks": webhooks}


async def distrust(leaf: Leaf, objects: dict[str, dict[str, object]]) -> str:
    api = FakeKubeApi()
    api.objects.update(objects)
    return await Callers(api, "gpufence").distrust(leaf)


async def test_a_certificate_is_trusted(leaf: Leaf, subtests: pytest.Subtests) -> None:
    of_both = configuration(OTHER.certificate_pem + OWN.certificate_pem, None)
    registered = {MUTATING: configuration(OWN.certificate_pem), VALIDATING: of_both}
    another_product = {MUTATING: configuration(OTHER.certificate_pem, name="a.example")}
    for objects in ({}, registered, another_product):
        with subtests.test(objects=objects):
            assert await distrust(leaf, objects) == ""


async def test_one_webhook_that_does_not_trust_it_is_enough(leaf: Leaf) -> None:
    one = configuration(OWN.certificate_pem, OTHER.certificate_pem)
    registered = {MUTATING: configuration(OWN.certificate_pem), VALIDATING: one}
    found = [await distrust(leaf, it) for it in (registered, {MUTATING: configuration(b"none")})]
    assert ["webhookconfigurations gpufence does not trust it" in each for each in found] == [
        True
    ] * 2


async def test_without_the_right_to_read_configurations_nothing_is_distrusted(leaf: Leaf) -> None:
    api = FakeKubeApi()
    api.error = ApiError(403, "forbidden")
    assert await Callers(api, "gpufence").distrust(leaf) == ""


async def test_an_api_server_that_does_not_answer_is_an_error(leaf: Leaf) -> None:
    api = FakeKubeApi()
    api.error = UnreachableError("no response")
    with pytest.raises(ClusterError):
        await Callers(api, "gpufence").distrust(leaf)

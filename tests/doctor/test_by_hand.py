"""The doctor of installations that somebody made by hand, without an API server."""

from __future__ import annotations

import asyncio

import pytest

from fake_kubeapi import FakeKubeApi
from policies.shipped import COMPILED, shipped_policy
from webhook.cli.doctor import diagnosed
from webhook.cli.errors import InputError
from webhook.configurations import Registration, configurations
from webhook.doctor.line import Line
from webhook.register import KINDS

FILES = ["serve", "--tls-cert=/certs/tls.crt", "--tls-key=/certs/tls.key", "--register=false"]


class _Api(FakeKubeApi):
    """Has no nodes."""

    async def get(self, path: str, query: object = None, *, seconds: float) -> bytes:
        return b'{"metadata": {}, "items": []}'


def diagnose(arguments: list[str], registered: Registration | None = None) -> list[Line]:
    api = _Api()
    container = {"name": "gpufence", "args": arguments}
    api.objects["/apis/apps/v1/namespaces/fence/deployments/gpufence"] = {
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": 2},
    }
    if registered is not None:
        for each in configurations(shipped_policy(), registered):
            api.objects[f"{KINDS[each['kind']]}/gpufence"] = each
    policy = str(COMPILED.with_suffix(".yaml"))
    return asyncio.run(diagnosed(api, "fence", "gpufence", policy, "default"))


def found(lines: list[Line], check: str) -> str:
    return next(line.found for line in lines if line.check == check)


def test_an_address_that_the_command_line_does_not_say_is_taken_from_what_is_registered() -> None:
    registered = Registration(service=("fence", "web", 443), excluded_namespaces=frozenset({"x"}))
    lines = diagnose(FILES, registered)
    assert found(lines, "endpoints").startswith("Service fence/web has no ready endpoint")
    assert next(line.status for line in lines if line.check == "clientConfig") == "ok"


@pytest.mark.parametrize("arguments", [FILES, [], ["serve", "--help"]])
def test_an_address_that_nobody_says_is_no_reason_to_fail(arguments: list[str]) -> None:
    assert found(diagnose(arguments), "endpoints") == "it is not known how gpufence is reached"


def test_a_name_that_no_certificate_can_have_is_told() -> None:
    with pytest.raises(InputError, match="is a wildcard"):
        diagnose(["serve", "--url=https://*.example:443"])

"""What tools say of objects that no API server stores, but a proxy or an extension may send."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from certs.secret import serving_data, with_data
from fake_apiserver import NODES, FakeApiServer, FakeKubeApi
from policies.shipped import DEFAULT, shipped_policy
from webhook.controller.certificates import SecretName
from webhook.controller.registrar import KINDS, POLICY_KINDS
from webhook.controller.text.objects import Registration, admission_policies, configurations
from webhook.documents.document import InputError
from webhook.kube.errors import ClusterError
from webhook.tools.cli.commands.doctor import read_arguments, read_replica
from webhook.tools.doctor.checks import diagnosis
from webhook.tools.doctor.installation import examine

NAME = "gpufence"
SERVING = SecretName("fence", "gpufence-serving")
REGISTRATION = Registration(service=("fence", NAME, 443))
WRONG: tuple[object, ...] = ([7], None)


def release() -> dict[str, Any]:
    """Return the objects of a release, by their paths."""
    fake = FakeKubeApi()
    authority = create_authority(fake.clock.now())
    leaf = issue_leaf(authority, Names.parse([f"{NAME}.fence.svc"]), fake.clock.now())
    objects = {
        f"/apis/apps/v1/namespaces/fence/deployments/{name}": {
            "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            "status": {"readyReplicas": 2},
        }
        for name, container in (
            (NAME, {"name": NAME, "args": ["serve", "--tls-cert=a", "--tls-key=b"]}),
            (f"{NAME}-controller", {"name": NAME, "args": ["controller", "--service=fence/a"]}),
        )
    }
    objects[SERVING.path] = with_data({"metadata": {}}, serving_data(leaf, authority))
    _, validating = configurations(shipped_policy(), REGISTRATION)
    objects[f"{KINDS[validating['kind']]}/{NAME}"] = validating
    _, binding, *_ = admission_policies(shipped_policy(), REGISTRATION)
    objects[f"{POLICY_KINDS[binding['kind']]}/{binding['metadata']['name']}"] = binding
    return {**objects, "/version": {"gitVersion": "v1.36.3"}}


def places(value: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field and of each first item."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, each in items:
        yield (*above, key)
        if isinstance(each, dict | list):
            yield from places(each, *above, key)


def malformed(obj: Any) -> Iterator[Any]:
    """Yield the object with each field absent, and with values of other types in it."""
    for *above, last in places(obj):
        for value in (*WRONG, ...):
            changed = copy.deepcopy(obj)
            holder = changed
            for key in above:
                holder = holder[key]
            if value is not ...:
                holder[last] = value
            elif isinstance(holder, dict):
                del holder[last]
            yield changed


@pytest.mark.parametrize("path", release())
async def test_a_malformed_object_is_a_sentence(path: str) -> None:
    objects = release()
    api = FakeKubeApi(FakeApiServer(NODES))
    for changed in malformed(objects[path]):
        api.objects.update({**objects, path: changed})
        with suppress(ClusterError, InputError):
            installed = await examine(
                api, "fence", NAME, str(DEFAULT), None, read_replica, read_arguments
            )
            assert list(diagnosis(installed))


async def test_the_sentence_names_the_object_and_the_field() -> None:
    api = FakeKubeApi()
    api.objects.update({**release(), SERVING.path: {"data": {"tls.crt": 7}}})
    problem = f"{SERVING.path}: the API server sent a malformed object: Expected `str`, got `int`"
    with pytest.raises(ClusterError, match=f"^{re.escape(problem)}"):
        await examine(api, "fence", NAME, str(DEFAULT), None, read_replica, read_arguments)

"""What is written, repaired and deleted of the in-tree policies, and in which order."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fake_apiserver import FakeKubeApi
from reviewing import default_policy
from webhook.cel.admission_policies import BINDING_KIND, POLICY_KIND, admission_policies
from webhook.cel.configurations import Registration
from webhook.kube.client import JSONObject, Query
from webhook.kube.errors import ApiError
from webhook.registration.drift import drift
from webhook.registration.registrar import POLICY_KINDS as PATHS
from webhook.registration.registrar import Registrar, RegistrationError, unregister_policies

WANTED = admission_policies(default_policy(), Registration(labels={"app": "gpufence"}))
FIRST, BINDING = (
    f"{PATHS[POLICY_KIND]}/gpufence-trespass",
    f"{PATHS[BINDING_KIND]}/gpufence-trespass",
)


class Api(FakeKubeApi):
    """Lists both collections, and remembers the order of writes."""

    def __init__(self, *, served: bool = True) -> None:
        super().__init__()
        self.served = served
        self.writes: list[str] = []
        self.added: JSONObject = {}
        """What another field manager has in every policy, which an apply leaves."""

    async def read(self, path: str, query: Query | None = None) -> JSONObject | None:
        if path not in PATHS.values():
            return await super().read(path, query)
        if not self.served:
            return None
        below = [obj for at, obj in self.objects.items() if at.startswith(f"{path}/")]
        return {"items": copy.deepcopy(below)}

    async def apply(self, path: str, obj: JSONObject) -> JSONObject:
        self.writes.append(f"apply {path}")
        return await super().apply(path, {**obj, "spec": {**obj["spec"], **self.added}})

    async def replace(self, path: str, obj: JSONObject) -> JSONObject:
        self.writes.append(f"replace {path}")
        return await super().replace(path, obj)

    async def delete(self, path: str) -> bool:
        self.writes.append(f"delete {path}")
        return await super().delete(path)


class Counter:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, kind: str, reason: str) -> None:
        self.seen.append((kind, reason))


def registrar(api: Api, counter: Counter | None = None) -> Registrar:
    return Registrar(api, counter or Counter(), "gpufence")


async def test_policies_are_written_before_the_bindings_that_name_them() -> None:
    api, counter = Api(), Counter()
    await registrar(api, counter).register_policies(WANTED)
    assert [write.split("/")[4] for write in api.writes] == [
        *["validatingadmissionpolicies"] * 2,
        *["validatingadmissionpolicybindings"] * 2,
    ]
    assert set(counter.seen) == {(POLICY_KIND, "created"), (BINDING_KIND, "created")}


async def test_objects_without_drift_are_not_written() -> None:
    api = Api()
    kept = registrar(api)
    await kept.register_policies(WANTED)
    api.writes.clear()
    await kept.register_policies(WANTED)
    assert api.writes == []


@pytest.mark.parametrize("field", ["validations", "matchConstraints", "failurePolicy", "variables"])
async def test_manual_changes_are_repaired_and_counted(field: str) -> None:
    api, counter = Api(), Counter()
    kept = registrar(api, counter)
    await kept.register_policies(WANTED)
    wanted = copy.deepcopy(api.objects[FIRST]["spec"])
    del api.objects[FIRST]["spec"][field]
    await kept.register_policies(WANTED)
    assert api.objects[FIRST]["spec"] == wanted
    assert counter.seen[-1] == (POLICY_KIND, "drift")


async def test_a_binding_that_no_longer_denies_is_repaired() -> None:
    api = Api()
    kept = registrar(api)
    await kept.register_policies(WANTED)
    api.objects[BINDING]["spec"]["validationActions"] = ["Audit"]
    await kept.register_policies(WANTED)
    assert api.objects[BINDING]["spec"]["validationActions"] == ["Deny"]


async def test_fields_of_other_managers_are_removed_by_replace() -> None:
    api = Api()
    api.added = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    await registrar(api).register_policies(WANTED)
    assert f"replace {FIRST}" in api.writes
    assert "paramKind" not in api.objects[FIRST]["spec"]


async def test_drift_that_remains_after_replace_raises_registration_error() -> None:
    class Stubborn(Api):
        async def replace(self, path: str, obj: JSONObject) -> JSONObject:
            return self.objects[path]

    api = Stubborn()
    api.added = {"failurePolicy": "Ignore"}
    with pytest.raises(RegistrationError, match=r"failurePolicy of the spec is Ignore"):
        await registrar(api).register_policies(WANTED)


async def test_obsolete_bindings_are_deleted_before_obsolete_policies() -> None:
    api = Api()
    kept = registrar(api)
    await kept.register_policies(WANTED)
    foreign = f"{PATHS[POLICY_KIND]}/of-another-product"
    api.objects[foreign] = {"metadata": {"name": "of-another-product"}, "spec": {}}
    api.writes.clear()
    await kept.register_policies(
        [obj for obj in WANTED if obj["metadata"]["name"] != "gpufence-trespass"]
    )
    assert api.writes == [f"delete {BINDING}", f"delete {FIRST}"]
    await kept.register_policies(())
    assert list(api.objects) == [foreign]


async def test_nothing_is_written_if_the_policy_api_is_not_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api(served=False)
    kept = registrar(api)
    await kept.register_policies(WANTED)
    await kept.register_policies(WANTED)
    assert api.writes == []
    assert caplog.text.count("second line incomplete") == 1


async def test_a_type_checking_warning_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api()
    kept = registrar(api)
    await kept.register_policies(WANTED)
    warning: dict[str, Any] = {"fieldRef": "spec.validations[0]", "warning": "undefined field"}
    api.objects[FIRST]["status"] = {"typeChecking": {"expressionWarnings": [warning]}}
    await kept.register_policies(WANTED)
    await kept.register_policies(WANTED)
    [record] = [r for r in caplog.records if "second line incomplete" in r.getMessage()]
    assert "undefined field" in str(vars(record))


async def test_delete_removes_only_objects_of_gpufence() -> None:
    api = Api()
    await registrar(api).register_policies(WANTED)
    foreign = f"{PATHS[BINDING_KIND]}/of-another-product"
    api.objects[foreign] = {"metadata": {"name": "of-another-product"}, "spec": {}}
    assert await unregister_policies(api, "gpufence") == {POLICY_KIND: True, BINDING_KIND: True}
    assert list(api.objects) == [foreign]
    assert await unregister_policies(api, "gpufence") == {POLICY_KIND: False, BINDING_KIND: False}


async def test_a_forbidden_write_raises_an_api_error() -> None:
    api = Api()
    api.write_error = ApiError(403, "may not patch")
    with pytest.raises(ApiError, match="may not patch"):
        await registrar(api).register_policies(WANTED)


def test_a_missing_label_is_drift() -> None:
    metadata = {**WANTED[0]["metadata"], "labels": {}}
    found = {**WANTED[0], "metadata": metadata}
    assert [str(each) for each in drift(WANTED[0], found)] == ["label app is None"]

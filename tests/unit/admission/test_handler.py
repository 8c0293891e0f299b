"""The outcome of a review: the wire format of every response, and the lookups it needs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from policies.engine import decide
from policies.facts import Request
from policies.finding import Mode
from reviewing import (
    UID,
    default_policy,
    deployment,
    gpu_pod,
    patch_of,
    plain_pod,
    review,
    trespassing_pod,
    with_value,
)
from served import Hook, MakeHook
from specs import JSON


def answer(response: JSON) -> JSON:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID} | response,
    }


async def test_a_gpu_pod_is_allowed_with_a_patch(hook: Hook) -> None:
    status, patched = await hook.post("/mutate", review(gpu_pod()))
    operations = patch_of(patched)
    del patched["response"]["patch"]
    [warning] = patched["response"].pop("warnings")
    assert warning.startswith("gpufence runs this Pod as user 65532, because the Pod sets no user")
    assert (status, patched) == (200, answer({"allowed": True, "patchType": "JSONPatch"}))
    assert {operation["op"] for operation in operations} == {"add"}
    expected = decide(gpu_pod(), default_policy(), Request(namespace="ml")).mutated
    assert jsonpatch.apply_patch(gpu_pod(), operations) == expected
    assert expected["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


async def test_a_trespassing_pod_is_denied_with_the_path_of_its_toleration(hook: Hook) -> None:
    response = await hook.response("/validate", review(trespassing_pod()))
    message = response["status"].pop("message")
    assert response == {
        "uid": UID,
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden"},
        "auditAnnotations": {"pool-trespass": f"enforce: {message.split('- pool-trespass: ')[1]}"},
    }
    first, second = message.split("\n")
    assert first == "gpufence found 1 problem in Pod shop/web:"
    assert second == (
        "- pool-trespass: spec.tolerations[0]: the toleration lets the Pod run on GPU nodes (pool "
        "nvidia), but the Pod requests no GPU. Set nvidia.com/gpu: 1 under resources.limits, or "
        "remove the toleration"
    )


async def test_mutation_never_rejects_for_a_finding(hook: Hook) -> None:
    response = await hook.response("/mutate", review(trespassing_pod()))
    assert response == {"uid": UID, "allowed": True}


async def test_a_rule_with_action_warn_allows_with_a_warning(make_hook: MakeHook) -> None:
    hook = await make_hook(default_policy(pool_trespass="warn"))
    response = await hook.response("/validate", review(trespassing_pod()))
    [warning] = response.pop("warnings")
    assert warning.startswith("pool-trespass: spec.tolerations[0]: the toleration lets the Pod run")
    assert len(warning) <= 256
    assert response.pop("auditAnnotations")["pool-trespass"].startswith("warn: ")
    assert response == {"uid": UID, "allowed": True}


async def test_a_mutation_with_action_warn_warns_and_changes_nothing(make_hook: MakeHook) -> None:
    hook = await make_hook(default_policy(pool_toleration="warn"))
    _, patched = await hook.post("/mutate", review(gpu_pod()))
    mutated = jsonpatch.apply_patch(gpu_pod(), patch_of(patched))
    assert "tolerations" not in mutated["spec"]
    [warning] = (await hook.response("/validate", review(mutated)))["warnings"]
    assert warning.startswith("pool-toleration: spec: ")


async def test_a_rule_with_action_audit_adds_only_an_audit_annotation(make_hook: MakeHook) -> None:
    hook = await make_hook(default_policy(pool_trespass="audit"))
    response = await hook.response("/validate", review(trespassing_pod()))
    assert response.pop("auditAnnotations")["pool-trespass"].startswith("audit: ")
    assert response == {"uid": UID, "allowed": True}


@pytest.mark.parametrize("mode", ["warn", "audit"])
async def test_other_modes_than_enforce_change_and_deny_nothing(
    make_hook: MakeHook, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpufence")
    hook = await make_hook(replace(default_policy(), mode=mode))
    for pod, rule in (
        (gpu_pod(), "restricted-security-context"),
        (trespassing_pod(), "pool-trespass"),
    ):
        assert await hook.response("/mutate", review(pod)) == {"uid": UID, "allowed": True}
        response = await hook.response("/validate", review(pod))
        assert response["allowed"]
        assert response["auditAnnotations"][rule].startswith("would_enforce: ")
        assert caplog.records[-1].getMessage() == "not enforced"
        begins = [
            text.startswith(f"not enforced yet: {rule}: ") for text in response.get("warnings", [])
        ]
        assert any(begins) is (mode == "warn")
        assert mode == "warn" or not begins
    counted = await hook.metric("gpufence_findings_total")
    assert counted['{action="would_enforce",rule="pool-trespass"}'] == 1


async def test_other_modes_than_enforce_allow_what_cannot_be_checked(make_hook: MakeHook) -> None:
    modes: dict[Mode, bool] = {"warn": True, "audit": False}
    malformed, found = with_value(gpu_pod(), "spec.containers", {"not": "a list"}), {}
    for mode in modes:
        hook = await make_hook(replace(default_policy(), mode=mode))
        response = await hook.response("/validate", review(malformed))
        found[mode] = response["allowed"], bool(response.get("warnings"))
    assert found == {mode: (True, warns) for mode, warns in modes.items()}


async def test_a_denial_carries_the_warnings_of_other_rules(make_hook: MakeHook) -> None:
    hook = await make_hook(default_policy(device_leak="warn"))
    pod = trespassing_pod()
    pod["spec"]["volumes"] = [{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}]
    response = await hook.response("/validate", review(pod))
    assert response["allowed"] is False
    assert "device-leak" not in response["status"]["message"]
    assert response["warnings"][0].startswith("device-leak: ")


async def test_an_object_without_a_namespace_uses_the_request_namespace(hook: Hook) -> None:
    pod = trespassing_pod()
    del pod["metadata"]["namespace"]
    exempt = await hook.response("/validate", review(pod, namespace="kube-system"))
    assert exempt == {
        "uid": UID,
        "allowed": True,
        "auditAnnotations": {"exempt": "the policy exempts namespace kube-system"},
    }
    fenced = await hook.response("/validate", review(pod, namespace="shop"))
    assert not fenced["allowed"]


async def test_an_update_with_only_known_findings_is_allowed(hook: Hook) -> None:
    old, new = trespassing_pod(), trespassing_pod()
    new["metadata"]["labels"] = {"app": "web"}
    update: dict[str, Any] = {"operation": "UPDATE", "oldObject": old}
    response = await hook.response("/validate", review(new, **update))
    assert response.pop("auditAnnotations")["known"].startswith("pool-trespass: ")
    # Controllers update Pods, and read no warnings.
    assert response == {"uid": UID, "allowed": True}
    assert not (
        await hook.response("/validate", review(new, **update | {"oldObject": plain_pod()}))
    )["allowed"]


async def test_known_findings_of_a_workload_are_warnings(make_hook: MakeHook) -> None:
    old = deployment(trespassing_pod())
    new = with_value(old, "spec.replicas", 5)
    update: dict[str, Any] = {"operation": "UPDATE", "oldObject": old}
    notes = {"enforce": "not denied, because the old object has it too: ", "warn": ""}
    for action, note in notes.items():
        hook = await make_hook(default_policy(pool_trespass=action))
        response = await hook.response("/validate", review(new, **update))
        assert response["allowed"]
        [warning] = response["warnings"]
        assert warning.startswith(f"{note}pool-trespass: spec.template.spec.tolerations[0]: ")
        assert len(warning) <= 256
    hook = await make_hook(default_policy(pool_trespass="audit"))
    assert "warnings" not in await hook.response("/validate", review(new, **update))
    hook = await make_hook(default_policy())
    owner = {"apiVersion": "example.com/v1", "kind": "Web", "name": "web", "controller": True}
    owned = with_value(new, "metadata.ownerReferences", [owner])
    assert "warnings" not in await hook.response("/validate", review(owned, **update))


async def test_requests_that_place_no_pod_are_allowed(
    hook: Hook, subtests: pytest.Subtests
) -> None:
    requests: list[JSON] = [
        {"operation": "DELETE", "object": None, "oldObject": trespassing_pod()},
        {"operation": "CONNECT", "subResource": "exec"},
        {"operation": "UPDATE", "subResource": "status"},
        {"operation": "CREATE", "subResource": "binding"},
    ]
    for fields in requests:
        for path in ("/mutate", "/validate"):
            with subtests.test(path=path, fields=fields):
                response = await hook.response(path, review(trespassing_pod(), **fields))
                assert response == {"uid": UID, "allowed": True}

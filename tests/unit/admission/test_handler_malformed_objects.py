"""Objects with a field of the wrong type are rejected with a message that names the field."""

from __future__ import annotations

from typing import Any

import pytest

from reviewing import UID, deployment, gpu_pod, plain_pod, pytorch_job, review, with_value, without
from served import Hook
from specs import JSON


async def rejection_message(hook: Hook, path: str, obj: JSON) -> str:
    """Return why an object is rejected as malformed, after a valid one was served."""
    response = await hook.response(path, review(obj, name="x", namespace="ml"))
    message: str = response["status"].pop("message")
    assert response == {"uid": UID, "allowed": False, "status": {"code": 422, "reason": "Invalid"}}
    assert await hook.response("/validate", review(plain_pod())) == {"uid": UID, "allowed": True}
    return message


async def test_a_field_of_the_wrong_type_is_rejected_with_its_path(hook: Hook) -> None:
    found, cause = {}, "gpufence cannot check this Pod, because it is malformed"
    for path in ("metadata", "spec.containers", "spec.hostPID"):
        for endpoint in ("/mutate", "/validate"):
            message = await rejection_message(hook, endpoint, with_value(gpu_pod(), path, "text"))
            found[endpoint, path] = message
    wrong = [m for (_, path), m in found.items() if not m.startswith(f"{cause}: {path}: must be ")]
    assert not wrong


async def test_an_extreme_quantity_causes_no_internal_error(
    hook: Hook, subtests: pytest.Subtests
) -> None:
    for quantity in ("1e999999999", "1e-999999999", "9" * 4000, 10**300, 1e300):
        pod = gpu_pod()
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = quantity
        for endpoint in ("/mutate", "/validate"):
            with subtests.test(endpoint=endpoint, quantity=quantity):
                response = await hook.response(endpoint, review(pod))
                assert response.get("status", {}).get("code", 200) in (200, 403, 422)
    assert await hook.metric("gpufence_internal_errors_total") == {"": 0}


async def test_a_workload_without_a_pod_template_is_rejected(hook: Hook) -> None:
    sound = deployment(plain_pod())
    without_template = [
        *(without(sound, path) for path in ("spec", "spec.template")),
        with_value(sound, "spec", []),
        *(with_value(sound, "spec.template", value) for value in ("web", None)),
    ]
    cause = "gpufence cannot check this Deployment, because it is malformed: it has no pod template"
    messages = [await rejection_message(hook, "/validate", each) for each in without_template]
    assert messages == [cause] * 5


async def test_a_malformed_custom_resource_is_allowed_with_a_warning(hook: Hook) -> None:
    workload = pytorch_job(with_value(plain_pod(), "spec.tolerations", "{{tolerations}}"))
    response = await hook.response("/validate", review(workload))
    [warning] = response.pop("warnings")
    assert warning == (
        "gpufence cannot check this PyTorchJob, because it is malformed: spec.pytorchReplicaSpecs"
        ".Worker.template.spec.tolerations: must be a list, but is a string"
    )
    assert response == {"uid": UID, "allowed": True}


async def test_an_oversized_object_is_reported_as_too_large(hook: Hook) -> None:
    many = [{"name": f"c{number}", "image": "a"} for number in range(201)]
    assert await rejection_message(
        hook, "/validate", with_value(plain_pod(), "spec.containers", many)
    ) == (
        "gpufence cannot check this Pod, because it is too large: "
        "it has 201 containers in one Pod; gpufence accepts up to 200"
    )
    large = pytorch_job(with_value(plain_pod(), "spec.containers", many))
    response = await hook.response("/validate", review(large))
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.startswith("gpufence cannot check this PyTorchJob, because it is too large: it")


def nested_deeply() -> JSON:
    deep: Any = "bottom"
    for _ in range(700):
        deep = [deep]
    return with_value(gpu_pod(), "spec.unknown", deep)


async def test_deep_nesting_in_a_field_that_no_rule_reads_is_accepted(hook: Hook) -> None:
    response = await hook.response("/mutate", review(nested_deeply()))
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"


async def test_a_too_deeply_nested_workload_is_rejected_as_malformed(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_recursion_error(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("webhook.serve.admission.handler.validate", raise_recursion_error)
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": nested_deeply()},
    }
    response = await hook.response("/validate", review(workload))
    assert response["status"]["message"] == (
        "gpufence cannot check this Deployment, because it is malformed: it is nested too deeply"
    )
    assert await hook.metric("gpufence_internal_errors_total") == {"": 0}


async def test_a_malformed_old_spec_causes_no_internal_error(
    hook: Hook, subtests: pytest.Subtests
) -> None:
    """Every API server sends a valid one. Any other excuses nothing of the new object."""
    debugged = gpu_pod()
    debugged["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "busybox"}]
    update = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    specs: tuple[object, ...] = ("text", 7, [], None, {"containers": 5})
    for spec in specs:
        with subtests.test(spec=spec):
            asked = review(debugged, **update, oldObject=with_value(debugged, "spec", spec))
            assert (await hook.response("/mutate", asked))["patchType"] == "JSONPatch"
            assert (await hook.response("/validate", asked))["status"]["code"] == 403
    assert await hook.metric("gpufence_internal_errors_total") == {"": 0}

"""Evidence for CNCF's AI conformance: what the doctor makes of the devices that containers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from fake_apiserver import FakeKubeApi
from policies.kubernetes.objects import JSONObject
from policies.shipped import shipped_policy
from webhook.kube.errors import ApiError
from webhook.tools.doctor import DoctorLine, Status
from webhook.tools.doctor.device_access import Seen, check, entry, judge
from webhook.tools.doctor.installation import Installation

FIRST, SECOND = "/dev/nvidia0", "/dev/nvidia1"
RENDER = "/dev/dri/renderD128"


NONE, ONE, TWO = (), (FIRST,), (SECOND,)


def test_containers_see_only_the_devices_that_they_request(subtests: pytest.Subtests) -> None:
    own = "see their own, and their other containers none: "
    both = (*ONE, *TWO)
    cases: list[tuple[list[tuple[str, tuple[str, ...], tuple[str, ...]]], str, str]] = [
        ([("a", NONE, NONE)], "ok", "without a request sees no device, on a"),
        ([("a", NONE, ONE)], "fail", f"sees {FIRST}, a"),
        (
            [("a", (FIRST, RENDER), NONE), ("a", TWO, NONE)],
            "ok",
            f"{own}{FIRST}, {RENDER} on a; {SECOND} on",
        ),
        # Equal names on two nodes, one device for both Pods, and two devices for one.
        ([("a", ONE, NONE), ("b", ONE, NONE)], "ok", f"{own}{FIRST} on a; {FIRST} on b"),
        ([("a", ONE, NONE), ("a", ONE, NONE)], "fail", f"the same: {FIRST} on a; {FIRST} on a"),
        ([("a", ONE, NONE), ("a", both, NONE)], "fail", f"one device sees {FIRST}, {SECOND}, a"),
        # A leak into the other container of a GPU Pod, and devices of an unknown kind.
        ([("a", ONE, NONE), ("a", TWO, ONE)], "fail", f"without a request sees {FIRST}, a"),
        ([("a", NONE, NONE), ("a", ONE, NONE)], "skip", "no device file of a known kind"),
    ]
    for pods, status, detail in cases:
        with subtests.test(pods=pods):
            line = judge([Seen(*pod) for pod in pods])
            assert line.status == status
            assert detail in line.detail


def test_the_entry_has_the_status_that_the_checks_show(subtests: pytest.Subtests) -> None:
    statuses: dict[Status, str] = {
        "ok": "Implemented",
        "skip": "Partially Implemented",
        "fail": "Not Implemented",
    }
    for last, status in statuses.items():
        with subtests.test(last=last):
            lines = [DoctorLine("ok", "a", "b"), DoctorLine(last, "c", "d")]
            made = entry(lines, "v1.36.3-eks-1", "report.xml")
            assert made["metadata"] == {"kubernetesVersion": "v1.36"}
            [requirement] = made["spec"]["security"]
            assert requirement["id"] == "secure_accelerator_access"
            assert (requirement["level"], requirement["status"]) == ("MUST", status)
            assert requirement["evidence"] == ["report.xml"]
            assert requirement["notes"] == f"ok: a: b\n{last}: c: d"


class Running(FakeKubeApi):
    """Runs each Pod at once on one node; a container prints the devices that its name has."""

    def __init__(self, devices: Mapping[str, Sequence[str]], most_pods: int = 3) -> None:
        super().__init__()
        self.devices = devices
        self.most_pods = most_pods
        self.pods: dict[str, JSONObject] = {}
        self.created: list[JSONObject] = []

    async def create(
        self, collection: str, obj: JSONObject, *, dry_run: bool = False
    ) -> JSONObject:
        if dry_run or len(self.created) == self.most_pods:
            raise ApiError(403, "exceeded quota: pods")
        name = f"{obj['metadata']['generateName']}{len(self.created)}"
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        spec = obj["spec"] | {"nodeName": "gpu-1"}
        made = {"metadata": {**obj["metadata"], "name": name}, "spec": spec, "status": ready}
        self.pods[f"{collection}/{name}"] = made
        self.created.append(made)
        return made

    async def read(self, path: str, _query: object = None) -> JSONObject | None:
        return self.pods.get(path)

    async def get(self, path: str, query: object = None, **_limits: object) -> bytes:
        assert isinstance(query, Mapping)
        number = path.removesuffix("/log")[-1]
        devices = self.devices.get(f"{number} {query['container']}", ())
        return "\n".join([*devices, "end of devices", ""]).encode()

    async def delete(self, path: str) -> bool:
        return self.pods.pop(path, None) is not None


async def lines_of(api: Running, image: str | None = "busybox") -> dict[str, tuple[str, str]]:
    """Return status and detail of each check."""
    installed = Installation("fence", "gpufence", policy=shipped_policy())
    found = [line async for line in check(api, installed, "ml", image)]
    return {line.check: (line.status, line.detail) for line in found}


async def test_the_pods_run_see_their_devices_and_are_deleted() -> None:
    isolated = "two Pods with one device each see their own, and their other containers none"
    api = Running({"1 with-request": [FIRST], "2 with-request": [SECOND]})
    assert await lines_of(api) == {
        "device access without a request": (
            "ok",
            "a Pod without a request sees no device, on gpu-1",
        ),
        "device access, pool nvidia": ("ok", f"{isolated}: {FIRST} on gpu-1; {SECOND} on gpu-1"),
    }
    assert not api.pods
    limits = [
        [each["resources"].get("limits") for each in pod["spec"]["containers"]]
        for pod in api.created
    ]
    assert limits == [[None], [None, {"nvidia.com/gpu": "1"}], [None, {"nvidia.com/gpu": "1"}]]


async def test_a_pod_is_deleted_if_the_next_one_is_rejected() -> None:
    api = Running({}, most_pods=2)
    found = await lines_of(api)
    assert found["device access, pool nvidia"] == (
        "skip",
        "the Pods do not run: exceeded quota: pods (HTTP 403)",
    )
    assert len(api.created) == 2
    assert not api.pods


async def test_without_an_image_each_check_is_skipped_by_name() -> None:
    api = Running({})
    assert await lines_of(api, None) == {
        "device access without a request": ("skip", "it runs a Pod on a node"),
        "device access, pool nvidia": ("skip", "it runs two Pods, each with a GPU"),
    }
    assert not api.created

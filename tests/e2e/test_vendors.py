"""A vendor that one entry adds: its Pods on a real API server, and its nodes in discover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from in_tree import in_tree
from policies import vendors
from policies.engine import validate
from policies.policy import Policy
from release.recorder import Recorder
from release.registered import registered
from running import run_here
from specs import JSON, policy_of
from valid_strategies import pod

ENTRY = """
[[vendors]]
name = "made-up"
resources = ["made-up.example/npu", "made-up.example/part-*"]
deviceClasses = ["npu.made-up.example"]
variable = "MADE_UP_VISIBLE_DEVICES"
deviceFiles = ["made-up*", "mu"]
marks = {"made-up.example/present" = "true"}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: npu-1, labels: {made-up.example/present: "true"}}
spec: {taints: [{key: made-up.example/npu, effect: NoSchedule}]}
status: {allocatable: {cpu: "8", made-up.example/npu: "8"}}
"""
CACHED = (
    vendors.known_vendors,
    vendors.vendors_by_taint,
    vendors._by_name,  # noqa: SLF001 - the file is read once in a process
    vendors._domains,  # noqa: SLF001 - as above
)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Policy]:
    """The policy that discover writes for a node of the vendor."""
    table = tmp_path / "vendors.toml"
    table.write_text(vendors.FILE.read_text() + ENTRY)
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODE)
    with monkeypatch.context() as patch:
        patch.setattr(vendors, "FILE", table)
        for function in CACHED:
            function.cache_clear()
        done = run_here("policy", "discover", "--nodes", nodes)
        assert (done.status, done.err) == (0, "")
        yield policy_of(yaml.safe_load(done.out)["spec"] | {"exemptions": {}})
    for function in CACHED:
        function.cache_clear()


def spec(**container: Any) -> JSON:
    return {"containers": [{"name": "main", "image": "app", **container}]}


def with_path(path: str) -> JSON:
    return spec() | {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


SHOWING = {"name": "MADE_UP_VISIBLE_DEVICES", "value": "0"}
LEAKS = {
    "a variable": spec(env=[SHOWING]),
    "a device file": with_path("/dev/made-up0"),
    "a directory of files": with_path("/host//dev/./mu/0"),
    "a toleration": spec() | {"tolerations": [{"key": "made-up.example/npu"}]},
}
PLAIN = {
    "another variable": spec(env=[{"name": "HABANA_VISIBLE_DEVICES", "value": "0"}]),
    "a device file of another vendor": with_path("/dev/davinci0"),
    "a longer name": with_path("/dev/mux"),
}


def test_one_entry_adds_a_vendor(
    control_plane: ControlPlane, made_up: Policy, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    [pool] = made_up.pools
    assert (pool.name, pool.node_selector) == ("made-up", {"made-up.example/present": "true"})
    pods = "/api/v1/namespaces/default/pods"
    with (
        Recorder(tmp_path) as recorder,
        registered(control_plane, recorder, made_up) as hook,
    ):
        for name, each in {**LEAKS, **PLAIN}.items():
            mark, _ = hook.send("POST", pods, pod(each))
            with subtests.test(called_for=name):
                assert bool(hook.called_endpoints(mark)) is (name in LEAKS)
    with in_tree(control_plane, made_up) as line:
        for name, each in {**LEAKS, **PLAIN}.items():
            outcome = line.create(pod(each))
            with subtests.test(denied=name):
                assert outcome.verdict == ("denied" if name in LEAKS else "accepted")
                assert validate(pod(each), made_up).allowed is (name in PLAIN)


def test_the_rule_about_unknown_devices_knows_the_vendor(made_up: Policy) -> None:
    assert vendors.vendor_of("made-up.example/part-1").name == "made-up"  # type: ignore[union-attr]
    assert vendors.vendor_of("deviceclass.resource.kubernetes.io/npu.made-up.example") is not None
    request = pod(spec(resources={"limits": {"made-up.example/npus": "1"}}))
    [finding] = validate(request, made_up).findings
    assert finding.remediation == "Rename made-up.example/npus to made-up.example/npu"

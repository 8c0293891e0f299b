"""The vendors of accelerators: every reader of the table knows each of their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from each import each
from policies.engine import validate
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.nodes import Node
from policies.kubernetes.quantity import is_extended_resource_name
from policies.shipped import default_policy_text, preset_text
from policies.vendors import known_vendors, vendor_of
from policies.vocabulary import device_files, visible_devices_variables
from reviewing import default_policy, plain_pod
from specs import default_spec, policy_of
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState
from webhook.tools.cli.discover.accelerators import is_of_a_vendor
from webhook.tools.cli.discover.drafts import draft_of

ACCELERATORS = Path(__file__).with_name("accelerators.txt")
OTHERS = (
    "cpu",
    "nvidia.com/hostdev",
    "nvidia.com/mlnxnics",
    "rdma/hca",
    "gpu.intel.com/i915_monitoring",
    "qat.intel.com/generic",
    "amd.com/xilinx_u30",
    "xilinx.com/fpga-xilinx_u200-0",
    "aws.amazon.com/efa",
    "vpc.amazonaws.com/efa",
    "devices.kubevirt.io/kvm",
    "deviceclass.resource.kubernetes.io/nic.example.com",
)


def accelerators() -> Iterator[tuple[str, str]]:
    """Yield the entry and the name of each accelerator of the file."""
    for line in ACCELERATORS.read_text().splitlines():
        if not line.startswith("#"):
            vendor, *names = line.split()
            yield from ((vendor, name) for name in names)


def test_each_name_of_an_accelerator_is_known_to_the_rule() -> None:
    policy = default_policy(**{"unknown-device-resource": "enforce"})

    def is_known(entry: str, name: str) -> None:
        vendor = vendor_of(name)
        assert vendor is not None, "no entry knows it"
        assert vendor.name == entry
        pod = plain_pod()
        pod["spec"]["containers"][0]["resources"] = {"limits": {name: "1"}}
        rules = {finding.rule for finding in validate(pod, policy).findings}
        assert ("unknown-device-resource" in rules) is not bool(policy.pools_of_device(name))

    each(accelerators(), lambda case: is_known(*case))
    assert {vendor for vendor, _ in accelerators()} == {entry.name for entry in known_vendors()}
    assert [name for name in OTHERS if vendor_of(name)] == []


def test_each_vendor_with_devices_gets_a_valid_pool() -> None:
    """Discover, the rules and the text for API servers read one entry."""

    def is_discovered(vendor: str) -> None:
        [entry] = [entry for entry in known_vendors() if entry.name == vendor]
        assert all(map(is_extended_resource_name, (entry.resource, *entry.fractional)))
        offered = {entry.resource: 8, **dict.fromkeys(entry.fractional, 80)}
        state = ClusterState(None)
        state.nodes.index.update(Node("n1", {"kubernetes.io/hostname": "n1"}, allocatable=offered))
        for name in entry.device_classes:
            put(state, {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {}})
        [pool] = draft_of(state).pools
        assert pool.name == vendor
        policy = policy_of(default_spec() | {"pools": [pool.document]})
        assert [name for name in offered if not policy.pools_of_resource(name)] == []
        assert is_of_a_vendor(entry.resource)
        assert entry.domain in policy.vendors
        assert not entry.variable or entry.variable in visible_devices_variables(policy)
        files = device_files(policy)
        assert all(
            f"/dev/{name.removesuffix('*')}" in "".join(files) for name in entry.device_files
        )

    each((vendor.name for vendor in known_vendors()), is_discovered)


def test_each_preset_of_a_vendor_offers_its_devices() -> None:
    def is_offered(vendor: str) -> None:
        [entry] = [entry for entry in known_vendors() if entry.name == vendor]
        text = preset_text(entry.preset) if entry.preset else default_policy_text()
        [pool] = policy_of(yaml.safe_load(text)["spec"]).pools
        assert entry.resource in pool.resources
        assert entry.taint in {taint.key for taint in pool.taints}

    each((v.name for v in known_vendors() if v.preset is not None), is_offered)


def test_no_two_vendors_have_the_same_names() -> None:
    names = [name for v in known_vendors() for name in (*v.patterns, *v.device_classes)]
    assert len(names) == len({*names})
    domains: dict[str, str] = {}
    for vendor in known_vendors():
        for name in NameSet(vendor.patterns).patterns:
            assert domains.setdefault(name.partition("/")[0], vendor.domain) == vendor.domain

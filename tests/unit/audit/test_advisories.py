"""Known advisories for the versions that Nodes report."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paths import PROJECT
from webhook.tools.audit.advisories import NodeVersions, VersionedNode, advisories

TOOLKIT = "nvcr.io/nvidia/k8s/container-toolkit"


def node(name: str, runtime: str = "", *images: str) -> VersionedNode:
    status: dict[str, Any] = {"images": [{"names": [image]} for image in images]}
    if runtime:
        status["nodeInfo"] = {"containerRuntimeVersion": runtime, "kernelVersion": "6.8.0-31"}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, VersionedNode)


def found(*nodes: VersionedNode) -> dict[str, tuple[str, ...]]:
    """Return the nodes that are affected by each advisory."""
    versions = NodeVersions()
    for each in nodes:
        versions.take(each)
    return {affected.advisory.ids[0]: affected.nodes for affected in versions.affected()}


@pytest.mark.parametrize(
    ("runtime", "affected"),
    [
        ("containerd://1.6.39", {"CVE-2024-25621"}),
        ("containerd://1.7.26", {"CVE-2024-25621", "CVE-2024-40635"}),
        ("containerd://1.7.29", set()),
        ("containerd://2.0.4-k3s1", {"CVE-2024-25621"}),
        ("containerd://2.1.4", {"CVE-2024-25621"}),
        ("containerd://2.2.0", set()),
        ("containerd://2.3.1", set()),
        ("cri-o://1.30.0", set()),
        ("containerd://unknown", set()),
        ("", set()),
    ],
)
def test_versions_of_containerd_are_compared_within_their_minor_release(
    runtime: str, affected: set[str]
) -> None:
    assert set(found(node("gpu-1", runtime))) == affected


@pytest.mark.parametrize(
    ("name", "affected"),
    [
        (f"{TOOLKIT}:v1.16.1-ubuntu20.04", {"CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266"}),
        (f"{TOOLKIT}:v1.17.4-ubi8", {"CVE-2025-23266"}),
        (f"{TOOLKIT}:v1.17.8", set()),
        (f"{TOOLKIT}@sha256:{'0' * 64}", set()),
        ("registry.example/container-toolkit:1.17.7", {"CVE-2025-23266"}),
        ("registry.example/my-container-toolkit:1.0.0", set()),
        ("nvcr.io/nvidia/gpu-operator:v25.3.0", {"CVE-2025-23266"}),
        ("nvcr.io/nvidia/gpu-operator:v25.10.0", set()),
    ],
)
def test_versions_of_nvidia_software_are_read_from_images(name: str, affected: set[str]) -> None:
    assert set(found(node("gpu-1", "", name))) == affected


def test_an_old_image_beside_a_newer_one_does_not_count() -> None:
    assert found(node("gpu-1", "", f"{TOOLKIT}:v1.17.4", f"{TOOLKIT}:v1.18.2")) == {}


def test_an_advisory_names_nodes_versions_and_the_update() -> None:
    versions = NodeVersions()
    for name, version in (("gpu-2", "v1.17.7"), ("gpu-1", "v1.17.5"), ("gpu-3", "v1.18.2")):
        versions.take(node(name, "", f"{TOOLKIT}:{version}"))
    [affected] = versions.affected()
    assert affected.problem == (
        "CVE-2025-23266, CVE-2025-23267 affects NVIDIA Container Toolkit 1.17.5, 1.17.7 on 2 "
        "nodes: gpu-1, gpu-2; a crafted image can run code as root on the node"
    )
    assert affected.remediation == (
        "Update NVIDIA Container Toolkit to 1.17.8 "
        "(https://nvidia.custhelp.com/app/answers/detail/a_id/5659)"
    )


def test_the_page_describes_every_advisory() -> None:
    page = (PROJECT / "docs/operate/advisories.md").read_text()
    for advisory in advisories():
        assert all(each in page for each in advisory.ids)
        assert advisory.source in page

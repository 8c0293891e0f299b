"""Values, annotations and mount points are read as container runtimes read them."""

from __future__ import annotations

import re
import time

import pytest

from policies.device_injection import (
    is_device_mount,
    is_legacy,
    names_cdi_device,
    names_device_file,
    shows_gpus,
)

FILES = re.compile(r"(/.*)?/dev/nvidia[^/]*")
ENTRY = "- path: /dev/example\n  type: c\n  minor: 0\n"


@pytest.mark.parametrize(
    ("value", "shows"),
    [
        ("", False),
        (" , ", False),
        ("void", False),
        ("all, void", False),
        ("none", False),
        ("0,none,all", False),
        ("all,none", True),
        ("none\u2003", True),
        ("\u2003all,none", True),
        ("\u2003all,void", False),
        ("Void", True),
        ("0", True),
        (None, True),
    ],
)
def test_a_value_shows_gpus_unless_it_has_void_or_begins_with_none(
    value: str | None, shows: bool
) -> None:
    assert shows_gpus(value) is shows


@pytest.mark.parametrize(
    ("env", "legacy"),
    [
        ({"CUDA_VERSION": "12.4"}, True),
        ({"CUDA_VERSION": None}, True),
        ({"CUDA_VERSION": ""}, False),
        ({"CUDA_VERSION": "12.4", "NVIDIA_REQUIRE_CUDA": ""}, True),
        ({"CUDA_VERSION": "12.4", "NVIDIA_REQUIRE_CUDA": None}, True),
        ({"CUDA_VERSION": "12.4", "NVIDIA_REQUIRE_CUDA": "cuda>=12"}, False),
        ({"CUDA_VERSION": "12.4", "NVIDIA_VISIBLE_DEVICES": ""}, False),
    ],
)
def test_a_version_without_requirements_and_devices_is_legacy(
    env: dict[str, str | None], legacy: bool
) -> None:
    assert is_legacy(env) is legacy


@pytest.mark.parametrize(
    ("path", "selects"),
    [
        ("/var/run/nvidia-container-devices/all", True),
        ("/var/run/nvidia-container-devicesall", True),
        ("//var/./run/x/../nvidia-container-devices/all/", True),
        ("/var/run/nvidia-container-devices/", False),
        ("/run/nvidia-container-devices/all", False),
        ("/x/var/run/nvidia-container-devices/all", False),
    ],
)
def test_a_mount_point_selects_devices_by_its_prefix(path: str, selects: bool) -> None:
    assert is_device_mount(path) is selects


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("nvidia.com/gpu=all", True),
        ("vendor.example/nic=eth1,k8s.gpu.nvidia.com/claim=a", True),
        ('["nvidia.com/gpu=0"]', True),
        ("- vendor.example/nic=eth1\n- nvidia.com/gpu=0\n", True),
        ("all", True),
        ("!!binary bnZpZGlhLmNvbS9ncHU9YWxs", True),
        ('"nvidia\\x2ecom/gpu=all"', True),
        ("notnvidia.com/gpu=all", False),
        ("- vendor.example/nic=eth1\n", False),
        ("", False),
    ],
)
def test_an_annotation_names_a_cdi_device_unless_each_name_is_foreign(
    value: str, names: bool
) -> None:
    assert names_cdi_device(value, {"nvidia.com"}) is names


@pytest.mark.parametrize(
    "value",
    ["a" * 250_000, "/" * 250_000, "major" * 50_000, "major" + " " * 250_000, "a/" * 125_000],
)
def test_a_long_annotation_is_read_in_linear_time(value: str) -> None:
    started = time.process_time()
    names_device_file(value, FILES)
    names_cdi_device(value, {"nvidia.com"})
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("- path: /dev//nvidia0", True),
        ("[{source: /run/nvidia/driver/dev/nvidia0, destination: /x}]", True),
        ("/dev/nvidia0:/dev/x:rwm", True),
        (f"{ENTRY}  major: 195", True),
        (f"{ENTRY}  major:\n    195", True),
        (f'{ENTRY}  "MAJOR" : "195"', True),
        (f"{ENTRY}  major: 0303", True),
        (f"{ENTRY}  major: 3:15", True),
        (f"{ENTRY}  major: 0xc3", True),
        (f"{ENTRY}  major: # a comment\n    195", True),
        (f"{ENTRY}  &a major: 195", True),
        (f"{ENTRY}  major: 511", True),
        (f"{ENTRY}  major: 10", False),
        ('[{"path":"/dev/example","major":10,"minor":229}]', False),
        (ENTRY, False),
        ("", False),
    ],
)
def test_an_annotation_names_a_device_file_by_path_number_or_hidden_text(
    value: str, names: bool
) -> None:
    assert names_device_file(value, FILES) is names

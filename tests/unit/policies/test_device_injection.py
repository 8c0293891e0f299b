"""Values, annotations and mount points are read as the kubelet and container runtimes read them."""

from __future__ import annotations

import time

import pytest

from policies.device_injection import MAX_LENGTH, names_cdi_device, names_device_file, values
from policies.kubernetes.core_v1 import EnvVar

FILES = ("/dev/nvidia",)
ENTRY = "- path: /dev/example\n  type: c\n  minor: 0\n"


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


def test_the_last_variable_of_a_name_counts_and_later_ones_are_unknown() -> None:
    optional = {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}
    env = [
        EnvVar("FIRST", "$(E)"),
        EnvVar("E", "1"),
        EnvVar("SECOND", "$(E)"),
        EnvVar("E", "2"),
        EnvVar("SELF", "a"),
        EnvVar("SELF", "$(SELF)b"),
        EnvVar("KEY", "a"),
        EnvVar("KEY", value_from=optional),
        EnvVar("NONE"),
    ]
    assert values(env) == {
        "FIRST": None,
        "E": "2",
        "SECOND": "1",
        "SELF": "ab",
        "KEY": None,
        "NONE": "",
    }


def test_references_that_double_a_value_take_no_memory() -> None:
    env = [EnvVar("V0", "x"), *(EnvVar(f"V{i + 1}", f"$(V{i})$(V{i})") for i in range(1000))]
    started = time.process_time()
    found = values(env)
    assert time.process_time() - started < 1
    assert found["V3"] == "x" * 8
    assert found["V1000"] is None
    assert all(len(value or "") <= MAX_LENGTH for value in found.values())

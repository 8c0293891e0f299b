"""A container gets GPUs without a request only if device-leak denies it: NVIDIA's runtime says so.

The opposite need not hold. ``HARMLESS`` lists what the rule denies although the container gets no
GPU, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from laws.profile import law
from policies.engine import decide
from reviewing import default_policy
from specs import JSON
from toolkit.runtime import FILES, Outcome, Toolkit, specification

pytestmark = pytest.mark.timeout(3600)

POLICY = default_policy()
KEYS = {"all": "all", "empty": "", "void": "void"}
"""The ConfigMap. A reference to its missing key is optional."""

LINKS = {"/dev//null": "/dev/null", "/proc/1/root/dev/null": "/dev/null"}
SOURCES = ["/dev/null", *LINKS, "/dev/zero", "/srv"]
ROOT = "/var/run/nvidia-container-devices"
ANNOTATION = "cdi.k8s.io/gpus"


def container(**env: str) -> JSON:
    """Return a Pod with these variables."""
    return pod([{"name": name, "value": value} for name, value in env.items()])


def pod(env: list[JSON], mounts: list[JSON] | None = None, annotations: JSON | None = None) -> JSON:
    """Return a Pod with one container; each mount has its own volume as ``source``."""
    mounts = mounts or []
    volumes = [{"name": f"v{index}", **mount["source"]} for index, mount in enumerate(mounts)]
    own = [
        {"name": f"v{index}"} | {key: value for key, value in mount.items() if key != "source"}
        for index, mount in enumerate(mounts)
    ]
    main = {"name": "main", "image": "registry.example/app", "env": env, "volumeMounts": own}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "annotations": annotations or {}},
        "spec": {"containers": [main], "volumes": volumes},
    }


def mounted(path: str, destination: str) -> JSON:
    """Return a Pod that mounts a file of the node."""
    return pod([], [{"source": {"hostPath": {"path": path}}, "mountPath": destination}])


def references() -> st.SearchStrategy[JSON]:
    """Return values from the ConfigMap."""
    return st.sampled_from([*KEYS, "missing"]).map(
        lambda key: {"configMapKeyRef": {"name": "map", "key": key, "optional": True}}
    )


def variables() -> st.SearchStrategy[JSON]:
    names = st.sampled_from(
        ["NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "E", "F"]
    )
    parts = st.sampled_from(
        [
            *("", " ", ",", "\t", "\u2003", "\x1c", "\x0b"),
            *("all", "none", "void", "ALL", "0", "7", "12.4", "cuda>=12.4"),
            *("$(E)", "$(F)", "$$(E)", "$", "$(E", "nvidia.com/gpu=all", "vendor.example/nic=eth1"),
        ]
    )
    texts = st.lists(parts, max_size=3).map("".join) | st.lists(parts, max_size=3).map(",".join)
    return st.builds(lambda name, value: {"name": name, **value}, names, values(texts))


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[JSON]:
    literal = texts.map(lambda text: {"value": text})
    return st.one_of(literal, literal, literal, references().map(lambda ref: {"valueFrom": ref}))


def mounts() -> st.SearchStrategy[JSON]:
    host_paths = st.sampled_from(SOURCES).map(lambda path: {"hostPath": {"path": path}})
    points = st.sampled_from([ROOT, ROOT[1:], f"/x/..{ROOT}", "/run/nvidia-container-devices"])
    names = st.sampled_from(
        [
            *("", "/", "/all", "all", "//0", "/./1", "/../x", "/void", "/imex/0"),
            *("/cdi/nvidia.com/gpu/all", "/cdi/nvidia.com/gpu=0", "/cdi/vendor.example/nic/eth1"),
        ]
    )
    return st.fixed_dictionaries(
        {
            "source": st.one_of(host_paths, host_paths, st.just({"emptyDir": {}})),
            "mountPath": st.builds("{}{}".format, points, names),
        },
        optional={"subPath": st.just("null")},
    )


def annotated() -> st.SearchStrategy[JSON]:
    keys = st.sampled_from([ANNOTATION, "cdi.k8s.io", "cdi.k8s.io/nics", "example.com/gpus"])
    names = st.sampled_from(
        ["nvidia.com/gpu=all", "nvidia.com/gpu=7", "vendor.example/nic=eth1", "all", "", " 0"]
    )
    return st.dictionaries(keys, st.lists(names, max_size=2).map(",".join), max_size=2)


def pods() -> st.SearchStrategy[JSON]:
    """Return Pods that look for a GPU."""
    seldom = st.lists(mounts(), max_size=1, unique_by=lambda mount: mount["mountPath"])
    return st.builds(
        pod, st.lists(variables(), max_size=4), st.just([]) | seldom, st.just({}) | annotated()
    )


def env_of(pod: JSON) -> list[JSON]:
    env: list[JSON] = pod["spec"]["containers"][0]["env"]
    return env


def outcome_of(pod: JSON, toolkit: Toolkit) -> Outcome:
    return toolkit.create(specification(pod, KEYS, LINKS))


def is_denied(pod: JSON) -> bool:
    return any(finding.rule == "device-leak" for finding in decide(pod, POLICY).findings)


HARMLESS: dict[str, Callable[[JSON, Outcome], bool]] = {
    "the node has no device of that name, so the container does not start": (
        lambda pod, outcome: not outcome.starts
    ),
    "the runtime adds the device of another vendor": lambda pod, outcome: bool(outcome.others),
    "the Pod does not show the value": lambda pod, outcome: any(
        "valueFrom" in variable or "$(" in variable.get("value", "") for variable in env_of(pod)
    ),
    "Go trims other spaces": lambda pod, outcome: any(
        not variable.get("value", "").isascii() for variable in env_of(pod)
    ),
    "the mount is of another file than /dev/null, or of a subPath": lambda pod, outcome: any(
        "hostPath" in volume for volume in pod["spec"]["volumes"]
    ),
    "a key without a slash is no CDI annotation": lambda pod, outcome: (
        "cdi.k8s.io" in pod["metadata"]["annotations"]
    ),
}
"""By its reason, the condition under which the rule may deny a container that gets no GPU."""


@law
@given(pods())
@example(container(CUDA_VERSION="none"))
@example(container(NVIDIA_VISIBLE_DEVICES="\u2003all,none"))
def test_a_container_that_gets_gpus_without_a_request_is_denied(
    toolkit: Toolkit, pod: JSON
) -> None:
    outcome = outcome_of(pod, toolkit)
    denied = is_denied(pod)
    event(f"denied: {denied}, GPUs: {bool(outcome.gpus)}, starts: {outcome.starts}")
    if outcome.gpus:
        assert denied
    elif denied:
        reasons = [reason for reason, holds in HARMLESS.items() if holds(pod, outcome)]
        assert reasons
        event(reasons[0])


LEAKS = {
    "a version that is a device value": container(CUDA_VERSION="none"),
    "a version of void": container(CUDA_VERSION="void"),
    "a version beside empty requirements": container(CUDA_VERSION="12.4", NVIDIA_REQUIRE_CUDA=""),
    "a version beside requirements that refer to an empty variable": container(
        E="", CUDA_VERSION="12.4", NVIDIA_REQUIRE_CUDA="$(E)"
    ),
    "a version beside requirements from a missing key": pod(
        [
            {"name": "CUDA_VERSION", "value": "12.4"},
            {
                "name": "NVIDIA_REQUIRE_CUDA",
                "valueFrom": {
                    "configMapKeyRef": {"name": "map", "key": "missing", "optional": True}
                },
            },
        ]
    ),
    "all before none": container(NVIDIA_VISIBLE_DEVICES="all,none"),
    "a mount point without a slash before the name": mounted(
        "/dev/null", f"{ROOT}cdi/nvidia.com/gpu/all"
    ),
    "a link to /dev/null": mounted("/proc/1/root/dev/null", f"{ROOT}/cdi/nvidia.com/gpu/all"),
}
"""Containers that get a GPU."""


@pytest.mark.parametrize("situation", LEAKS)
def test_a_leak_of_the_runtime_is_denied(toolkit: Toolkit, situation: str) -> None:
    pod = LEAKS[situation]
    assert outcome_of(pod, toolkit).gpus
    assert is_denied(pod)


NO_LEAKS = {
    "a space": container(NVIDIA_VISIBLE_DEVICES=" "),
    "a comma": container(NVIDIA_VISIBLE_DEVICES=","),
    "void after a space": container(NVIDIA_VISIBLE_DEVICES=" void"),
    "void before all": container(NVIDIA_VISIBLE_DEVICES="void,all"),
    "a reference to an empty variable": container(E="", NVIDIA_VISIBLE_DEVICES="$(E)"),
    "an empty version": container(CUDA_VERSION=""),
    "a mount point in /run": mounted("/dev/null", "/run/nvidia-container-devices/all"),
    "a mount point without a name": mounted("/dev/null", ROOT),
    "another volume at the mount point": pod(
        [], [{"source": {"emptyDir": {}}, "mountPath": f"{ROOT}/all"}]
    ),
}
"""Containers that get no GPU."""


@pytest.mark.parametrize("situation", NO_LEAKS)
def test_what_the_runtime_ignores_is_allowed(toolkit: Toolkit, situation: str) -> None:
    pod = NO_LEAKS[situation]
    assert outcome_of(pod, toolkit) == Outcome(True, (), ())
    assert not is_denied(pod)


@pytest.mark.parametrize("variable", FILES)
def test_other_devices_beside_no_gpu_are_denied(toolkit: Toolkit, variable: str) -> None:
    try:
        toolkit.make_device_files()
    except PermissionError:
        pytest.skip("only root can make the device files that the runtime looks for")
    for visible, value in product(["none", "0,none", "void", "", "0"], ["enabled", "true", ""]):
        pod = container(NVIDIA_VISIBLE_DEVICES=visible)
        env_of(pod).append({"name": variable, "value": value})
        added = toolkit.added_files(specification(pod, KEYS, LINKS))
        gets_more = value == "enabled" and visible not in {"void", ""}
        assert added == ([FILES[variable]] if gets_more else [])
        assert is_denied(pod) is (bool(added) or visible == "0")

"""The remediation for Pods that a platform of the cluster may create for a node."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import pod, policy, required
from policies.context import Context
from policies.facts import Facts, Request
from policies.platform_pods import of_platform
from typed import pod_of

WILDCARD = [{"operator": "Exists"}]
PINNED = required("kubernetes.io/hostname In gpu-1")
VOLUMES = [{"name": "a", "hostPath": {"path": "/opt"}}]


def advice(namespace: str = "storage", **spec: Any) -> str:
    context = Context(policy(), Request(namespace=namespace), Facts())
    return of_platform("remove it", pod_of(pod(**spec)), context)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "gpu-1"},
        {"volumes": VOLUMES},
        {"hostPID": True},
        {"hostIPC": True},
        {"hostNetwork": True},
        {**PINNED, "tolerations": WILDCARD},
        {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "tolerations": WILDCARD},
    ],
)
def test_a_pod_that_works_on_its_node_is_for_the_cluster_administrator(spec: Any) -> None:
    exempt = "exempt namespace storage in the policy (exemptions.namespaces)"
    start = "If a platform of the cluster creates this Pod, have the cluster administrator "
    assert advice(**spec) == f"{start}{exempt}. Otherwise remove it"
    # An exemption of the namespace default would exempt all Pod authors.
    assert advice("default", **spec) == f"{start}add an exception for it. Otherwise remove it"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tolerations": WILDCARD},
        PINNED,
        {**PINNED, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        {**required("zone In a"), "tolerations": WILDCARD},
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"hostPID": False, "hostIPC": False, "hostNetwork": False},
    ],
)
def test_another_pod_is_for_its_author(spec: Any) -> None:
    assert advice(**spec) == ""


def test_a_debug_pod_of_a_node_belongs_in_an_exempt_namespace() -> None:
    assert advice(nodeName="gpu-1", hostPID=True) == (
        "To debug the node, use an exempt namespace: kubectl debug node/gpu-1 "
        "--namespace=kube-system, or oc debug node/gpu-1 --to-namespace=kube-system"
    )

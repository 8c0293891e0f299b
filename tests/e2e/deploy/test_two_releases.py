"""Two releases in one cluster, whose replicas carry what the other one reviews."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.objects import RESTRICTED
from controlplane.poll import until
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Helm, Object, Values
from deploy.installation import KINDS, Installation, installation

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]

SECOND, SECOND_NAMESPACE = "second-gpufence", "second-system"
RELEASES = {RELEASE: NAMESPACE, SECOND: SECOND_NAMESPACE}

# Replicas tolerate the GPU nodes, and select others: with cluster facts, that is no trespass. A Pod
# that tolerates a pool's taint is reviewed with failure policy Fail.
PLACED: Values = {
    "nodeSelector": {"kubernetes.io/hostname": "one"},
    "tolerations": [{"operator": "Exists"}],
}
VALUES: Values = {"clusterFacts": True, **PLACED}
TOLERATING: Object = {
    "metadata": {"generateName": "probe-"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/app"}], **PLACED},
}


def test_two_releases_recover_after_an_outage_of_all_replicas(
    found_binaries: dict[str, Path], helm: Helm, tmp_path: Path
) -> None:
    with installation(tmp_path, found_binaries, helm) as installed:
        installed.cluster.create_namespace(SECOND_NAMESPACE, RESTRICTED)
        with kubelet.kubelet(installed.cluster, SECOND_NAMESPACE, tmp_path / "second") as second:
            installed.install(VALUES)
            installed.helm.with_values(("install", SECOND), VALUES, "--namespace", SECOND_NAMESPACE)
            kubelet.wait_ready(second, 2)
            until(
                lambda: exempted(installed, RELEASE) == exempted(installed, SECOND),
                "both to register",
            )
            assert exempted(installed, SECOND) >= set(RELEASES.values())

            scale(installed, 0)
            # Not before their processes have ended: a replica that drains still answers.
            until(lambda: not pods(installed), "all replicas to be gone")
            assert "failed calling webhook" in installed.refusal(TOLERATING)
            scale(installed, 2)
            for running in (installed.kubelet, second):
                kubelet.wait_ready(running, 2)
            until(lambda: not installed.refusal(TOLERATING), "other Pods")


def exempted(installed: Installation, release: str) -> set[str]:
    """Return the namespaces that no webhook of a release reviews; none if it has no webhooks."""
    found = []
    for kind in KINDS:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
        for each in installed.cluster.api.request("GET", path)["items"]:
            if each["metadata"]["name"] == release:
                found += [namespaces(webhook) for webhook in each["webhooks"]]
    return set.intersection(*found) if found else set()


def namespaces(webhook: Object) -> set[str]:
    [selector] = webhook["namespaceSelector"]["matchExpressions"]
    assert selector["operator"] == "NotIn"
    return set(selector["values"])


def pods(installed: Installation) -> list[Object]:
    """Return the Pods of both releases."""
    paths = [f"/api/v1/namespaces/{each}/pods" for each in RELEASES.values()]
    return [pod for path in paths for pod in installed.cluster.api.request("GET", path)["items"]]


def scale(installed: Installation, replicas: int) -> None:
    for release, namespace in RELEASES.items():
        flags = (f"--replicas={replicas}", "--namespace", namespace)
        installed.cluster.kubectl("scale", "deployment", release, *flags)

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


def test_both_come_back_after_an_outage_of_both(
    found_binaries: dict[str, Path], helm: Helm, tmp_path: Path
) -> None:
    with installation(tmp_path, found_binaries, helm) as made:
        made.cluster.create_namespace(SECOND_NAMESPACE, RESTRICTED)
        with kubelet.kubelet(made.cluster, SECOND_NAMESPACE, tmp_path / "second") as second:
            made.install(VALUES)
            made.helm.with_values(("install", SECOND), VALUES, "--namespace", SECOND_NAMESPACE)
            kubelet.wait_ready(second, 2)
            until(lambda: exempted(made, RELEASE) == exempted(made, SECOND), "both to register")
            assert exempted(made, SECOND) >= set(RELEASES.values())

            scale(made, 0)
            # Not before their processes have ended: a replica that drains still answers.
            until(lambda: not pods(made), "all replicas to be gone", within=60)
            assert "failed calling webhook" in made.refusal(TOLERATING)
            scale(made, 2)
            for running in (made.kubelet, second):
                kubelet.wait_ready(running, 2)
            until(lambda: not made.refusal(TOLERATING), "other Pods", within=30)


def exempted(made: Installation, release: str) -> set[str]:
    """Return the namespaces that no webhook of a release reviews; none if it has no webhooks."""
    found = []
    for kind in KINDS:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
        for each in made.cluster.api.request("GET", path)["items"]:
            if each["metadata"]["name"] == release:
                found += [namespaces(webhook) for webhook in each["webhooks"]]
    return set.intersection(*found) if found else set()


def namespaces(webhook: Object) -> set[str]:
    [selector] = webhook["namespaceSelector"]["matchExpressions"]
    assert selector["operator"] == "NotIn"
    return set(selector["values"])


def pods(made: Installation) -> list[Object]:
    """Return the Pods of both releases."""
    paths = [f"/api/v1/namespaces/{each}/pods" for each in RELEASES.values()]
    return [pod for path in paths for pod in made.cluster.api.request("GET", path)["items"]]


def scale(made: Installation, replicas: int) -> None:
    for release, namespace in RELEASES.items():
        flags = (f"--replicas={replicas}", "--namespace", namespace)
        made.cluster.kubectl("scale", "deployment", release, *flags)

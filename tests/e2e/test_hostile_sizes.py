"""Objects that are built to exceed what a review, a replica or a timeout can hold.

A Pod with ``nodeName`` is reviewed whatever its size: what the API server cannot send in time, it
decides itself, by the failure policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, ApiError
from controlplane.poll import until
from deploy import kubelet
from deploy.chart import Helm
from deploy.installation import Installation, installation

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]

TENANT = "tenant"
PODS = f"/api/v1/namespaces/{TENANT}/pods?dryRun=All"

TOO_LARGE = (
    'admission webhook "pods.gpufence.dev" denied the request: gpufence cannot review '
    "this object, because the review is over 8 MiB. Make the object smaller: move long values into "
    "a ConfigMap"
)


@pytest.fixture(scope="module")
def installed(
    found_binaries: dict[str, Path], helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """The chart's default installation, in a cluster with a tenant."""
    with installation(tmp_path_factory.mktemp("sizes"), found_binaries, helm) as installed:
        installed.install({})
        cluster = installed.cluster
        cluster.create_namespace(TENANT)
        until(
            lambda: "belongs to pool nvidia" in verdict(cluster.api, bound_pod(1)),
            "the replicas to know the nodes",
        )
        yield installed


def bound_pod(size: int) -> dict[str, Any]:
    """Return a Pod on a GPU node, with so many bytes that the API server escapes to six each."""
    env = [{"name": "A", "value": "<" * size}]
    main = {"name": "main", "image": "registry.example/app", "env": env}
    return {
        "metadata": {"generateName": "attack-"},
        "spec": {"containers": [main], "nodeName": "gpu"},
    }


def verdict(api: Api, pod: dict[str, Any]) -> str:
    try:
        api.request("POST", PODS, pod)
    except ApiError as error:
        return str(error)
    return "created"


def test_a_review_over_the_size_limit_is_denied(installed: Installation) -> None:
    assert verdict(installed.cluster.api, bound_pod(1_400_000)) == TOO_LARGE


def test_parallel_large_reviews_are_denied_or_fail_closed(installed: Installation) -> None:
    api, pod, many = installed.cluster.api, bound_pod(1_250_000), 24
    # A slow API server may use up the timeout before it sends anything.
    patient = replace(api, timeout=120)
    with ThreadPoolExecutor(many) as threads:
        verdicts = list(threads.map(lambda _: verdict(patient, pod), range(many)))
    print("\n" + "\n".join(sorted({f"{verdicts.count(each)} x {each}" for each in verdicts})))
    assert "created" not in verdicts
    # Neither does gpufence answer with an HTTP error, which another failure policy would ignore.
    log = (installed.cluster.directory / "kube-apiserver.log").read_text()
    assert "the server responded with the status code" not in log

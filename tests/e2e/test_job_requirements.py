"""What pool-requirements demands of Jobs and their owners, on a real API server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cases.loading import policy_spec
from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import running
from controlplane.objects import pod
from controlplane.poll import until
from each import each
from policies.vocabulary import QUEUE_LABEL
from specs import JSON


@pytest.fixture(scope="module")
def limited(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The API as a tenant reaches it, with a pool for one hour and with a queue."""
    spec = policy_spec("default")
    [pool] = spec["pools"]
    requires = [{"action": "enforce", "maxRuntime": "1h", "queue": True}]
    spec |= {"pools": [{**pool, "requires": requires}]}
    with (
        running(control_plane, tmp_path_factory.mktemp("limited"), spec) as fence,
        fence.registered(),
    ):
        yield replace(control_plane.api, user="alice")


def template() -> JSON:
    return {"spec": {**pod({"nvidia.com/gpu": "1"})["spec"], "restartPolicy": "Never"}}


def job(**spec: Any) -> JSON:
    metadata = {"name": "train", "labels": {QUEUE_LABEL: "team"}}
    limited = {"activeDeadlineSeconds": 3600, "suspend": True, "template": template(), **spec}
    return {"metadata": metadata, "spec": limited}


def batch(namespace: str, kind: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/{kind}"


MERGE = "application/merge-patch+json"
LATER: dict[str, JSON] = {
    "a longer run time": {"spec": {"activeDeadlineSeconds": 7200}},
    "no limit": {"spec": {"activeDeadlineSeconds": None}},
    "no queue": {"metadata": {"labels": {QUEUE_LABEL: None}}},
}


def test_what_a_job_states_cannot_be_withdrawn_later(limited: Api, namespace: str) -> None:
    of_jobs = {"metadata": {"labels": {QUEUE_LABEL: "team"}}, "spec": job()["spec"]}
    scheduled = {"schedule": "0 0 1 1 *", "jobTemplate": of_jobs}
    objects = {"jobs": job(), "cronjobs": {"metadata": {"name": "train"}, "spec": scheduled}}
    for kind, obj in objects.items():
        path = batch(namespace, kind)
        limited.request("POST", path, obj)
        harmless = {"metadata": {"labels": {"a": "b"}}}
        limited.request("PATCH", f"{path}/train", harmless, MERGE)

    def is_denied(case: tuple[str, str]) -> None:
        kind, change = case
        patch = LATER[change] if kind == "jobs" else {"spec": {"jobTemplate": LATER[change]}}
        with pytest.raises(ApiError, match="pool-requirements: "):
            limited.request("PATCH", f"{batch(namespace, kind)}/train", patch, MERGE)

    each(itertools.product(objects, LATER), is_denied)
    for kind in objects:
        limited.request("DELETE", f"{batch(namespace, kind)}/train?propagationPolicy=Background")


@pytest.mark.parametrize("of", ["batch/v1 Job", "jobset.x-k8s.io/v1alpha2 JobSet"])
def test_an_owner_that_the_author_wrote_excuses_nothing(
    limited: Api, namespace: str, of: str
) -> None:
    version, kind = of.split()
    owner = {"apiVersion": version, "kind": kind, "name": "a", "uid": "a", "controller": True}
    owned = {"name": "train", "ownerReferences": [owner]}
    alone = {"metadata": owned, "spec": template()["spec"]}
    assert "pool-requirements: " in limited.refusal(f"/api/v1/namespaces/{namespace}/pods", alone)
    endless = job(activeDeadlineSeconds=None) | {"metadata": owned}
    assert "pool-requirements: " in limited.refusal(batch(namespace, "jobs"), endless)


def test_the_pods_of_a_job_with_a_limit_are_created(
    control_plane: ControlPlane, limited: Api, namespace: str
) -> None:
    limited.request("POST", batch(namespace, "jobs"), job(suspend=False))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    until(lambda: control_plane.api.request("GET", pods)["items"], "the Pod of the Job")
    path = f"{batch(namespace, 'jobs')}/train?propagationPolicy=Background"
    limited.request("DELETE", path)

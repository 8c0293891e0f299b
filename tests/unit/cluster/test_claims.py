"""Claims are looked up when an object names them, within the time that there is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clusters import Counts, facts_of, named, policy
from fake_apiserver import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    NODES,
    FakeApiServer,
    eventually,
)
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.workload import Workload
from webhook.cluster.claims import ClaimName, claims_named
from webhook.cluster.facts import ClusterFacts

JSON = dict[str, Any]
ML = Request("ml")
GPU = Claim((frozenset({"gpu.nvidia.com"}),))


def claim(name: str, *classes: str) -> JSON:
    """Return a claim on one device, of any of the classes."""
    request: JSON = {"name": "gpu", "exactly": {"deviceClassName": classes[0]}}
    if len(classes) > 1:
        ranked = [
            {"name": device_class, "deviceClassName": device_class} for device_class in classes
        ]
        request = {"name": "gpu", "firstAvailable": ranked}
    return {**named(name), "spec": {"devices": {"requests": [request]}}}


def template(name: str, *classes: str) -> JSON:
    return {**named(name), "spec": {"spec": claim(name, *classes)["spec"]}}


def pod(*entries: JSON) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [], "resourceClaims": list(entries)},
    }


def by_template(name: str) -> JSON:
    return {"name": "gpu", "resourceClaimTemplateName": name}


def by_name(name: str) -> JSON:
    return {"name": "gpu", "resourceClaimName": name}


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES, DEVICE_CLASSES, CLAIMS, CLAIM_TEMPLATES)
    api.put(CLAIMS, claim("shared", "gpu.nvidia.com"))
    api.put(CLAIM_TEMPLATES, template("one-gpu", "gpu.nvidia.com"))
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def cluster(
    api: FakeApiServer, counts: Counts, tmp_path: Path
) -> AsyncIterator[ClusterFacts]:
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        yield cluster


async def resolve(cluster: ClusterFacts, *entries: JSON, seconds: float = 2.0) -> Facts:
    return await cluster.facts_for(Request(namespace="ml"), Workload(pod(*entries)), seconds)


def requests_for(api: FakeApiServer, path: str) -> int:
    return sum(asked.path == path for asked in api.requests)


async def test_claims_and_claim_templates_are_resolved_by_name(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    api.put(CLAIMS, claim("either", "gpu.nvidia.com", "mig.nvidia.com"))
    entries = by_template("one-gpu"), by_name("shared"), by_name("either")
    facts = await resolve(cluster, *entries)
    either = Claim((frozenset({"gpu.nvidia.com", "mig.nvidia.com"}),))
    assert facts.claims == {("ml", "shared"): GPU, ("ml", "either"): either}
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}
    assert counts.lookups == {"found": 3}


async def test_claims_of_old_objects_and_workloads_are_resolved(cluster: ClusterFacts) -> None:
    old = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": pod(by_name("shared"))},
    }
    new: JSON = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"replicas": {"Worker": {"template": pod(by_template("one-gpu"))}}},
    }
    worker = new["spec"]["replicas"]["Worker"]["template"]
    worker["spec"]["containers"] = [{"name": "train", "image": "train"}]
    facts = await cluster.facts_for(Request(namespace="ml", old=old), Workload(new), 2.0)
    assert facts.claims == {("ml", "shared"): GPU}
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}


async def test_a_pod_without_claims_does_not_wait(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    running = cluster.facts_for(Request(namespace="ml"), Workload(pod()), 2.0)
    with pytest.raises(StopIteration):
        running.send(None)  # the first step is the last: there was nothing to wait for
    assert not requests_for(api, f"{CLAIMS}/shared")


async def test_no_claim_is_looked_up_if_the_policy_has_no_device_classes(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with facts_of(api, tmp_path, policy(deviceClasses=[])) as cluster:
        assert (await resolve(cluster, by_name("shared"))).claims == {}
    assert not requests_for(api, f"{CLAIMS}/shared")


async def test_a_replaced_claim_template_is_resolved_to_its_new_content(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    facts = await resolve(cluster, by_template("one-gpu"))
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}
    api.remove(CLAIM_TEMPLATES, "one-gpu")
    api.put(CLAIM_TEMPLATES, template("one-gpu", "none.example.com"))
    facts = await resolve(cluster, by_template("one-gpu"))
    assert facts.claim_templates == {("ml", "one-gpu"): Claim((frozenset({"none.example.com"}),))}
    assert counts.lookups == {"found": 2}


async def test_a_missing_claim_is_found_by_the_next_lookup_after_its_creation(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    assert (await resolve(cluster, by_name("late"))).claims == {}
    api.put(CLAIMS, claim("late", "gpu.nvidia.com"))
    assert (await resolve(cluster, by_name("late"))).claims == {("ml", "late"): GPU}
    assert counts.lookups == {"missing": 1, "found": 1}


async def test_waiting_reviews_share_one_lookup_that_starts_after_their_arrival(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    path = f"{CLAIM_TEMPLATES}/one-gpu"
    held = api.blocked[path] = asyncio.Event()

    def start_resolving() -> list[asyncio.Task[Facts]]:
        given = (by_template("one-gpu") for _ in range(20))
        return [asyncio.create_task(resolve(cluster, entry)) for entry in given]

    first = start_resolving()
    await eventually(lambda: requests_for(api, path), "the request")
    # These start while the response is pending, and the template may change in between.
    later = start_resolving()
    await asyncio.sleep(0)
    held.set()
    answers = await asyncio.gather(*first, *later)
    assert all(facts.claim_templates == {("ml", "one-gpu"): GPU} for facts in answers)
    assert requests_for(api, path) == 2


async def test_a_late_response_leaves_only_that_claim_unresolved(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    held = api.blocked[f"{CLAIMS}/shared"] = asyncio.Event()
    async with asyncio.timeout(3):  # The limit is half of the remaining time, or a second.
        facts = await resolve(cluster, by_name("shared"), by_template("one-gpu"), seconds=10)
    assert facts.claims == {}
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}
    held.set()
    facts = await resolve(cluster, by_name("shared"))
    assert facts.claims == {("ml", "shared"): GPU}
    assert counts.lookups == {"late": 1, "found": 2}


async def test_a_failed_lookup_leaves_claims_unresolved_and_is_logged_once(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    await resolve(cluster, by_name("shared"))
    api.errors[f"{CLAIMS}/shared"] = (500, "no leader")
    for _ in range(2):
        # What was found before does not stand in: it may be another claim by now.
        assert (await resolve(cluster, by_name("shared"))).claims == {}
    api.errors.clear()
    assert (await resolve(cluster, by_name("shared"))).claims == {("ml", "shared"): GPU}
    assert counts.lookups == {"failed": 2, "found": 2}
    records = [record for record in caplog.records if record.message == "claim lookup failed"]
    assert [record.__dict__["gpufence_fields"] for record in records] == [
        {"problem": "no leader (HTTP 500)"}
    ]
    assert records[0].levelno == logging.WARNING


async def test_a_malformed_claim_counts_as_a_failed_lookup(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    api.put(CLAIMS, {**named("odd"), "spec": "none"})
    api.put(CLAIM_TEMPLATES, {**named("odd"), "spec": {"spec": ["none"]}})
    facts = await resolve(cluster, by_name("odd"), by_template("odd"))
    assert facts.claims == {}
    assert facts.claim_templates == {("ml", "odd"): Claim(())}, "a spec that asks for nothing"
    assert counts.lookups == {"failed": 1, "found": 1}


async def test_a_claim_above_512_kib_stays_unresolved(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    large = claim("large", "gpu.nvidia.com")
    large["metadata"]["annotations"] = {"a": "<" * 600 * 1024}
    api.put(CLAIMS, large)
    facts = await resolve(cluster, by_name("large"), by_name("shared"))
    assert set(facts.claims) == {("ml", "shared")}
    assert counts.lookups == {"failed": 1, "found": 1}


async def test_an_object_with_more_claims_than_the_limit_causes_no_lookup(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    await eventually(lambda: not cluster.unready(), "everything to be known")
    before = len([asked for asked in api.requests if not asked.is_watch])
    await resolve(cluster, *(by_name(f"claim-{number}") for number in range(1000)))
    after = len([asked for asked in api.requests if not asked.is_watch])
    assert after == before


async def test_pending_lookups_are_limited_while_the_api_server_is_silent(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    names = [f"claim-{number}" for number in range(320)]
    held = asyncio.Event()
    api.blocked |= {f"{CLAIMS}/{name}": held for name in names}
    await asyncio.gather(
        *(
            resolve(cluster, *map(by_name, names[start : start + 32]), seconds=0.4)
            for start in range(0, 320, 32)
        )
    )
    held.set()
    assert counts.lookups == {"late": 256, "failed": 64}


@pytest.mark.parametrize(
    "name",
    ["../../../../api/v1/secrets", "a/b", "%2e%2e", "UPPER", "", "a" * 254, 5, None, ["a"], "a b"],
)
@pytest.mark.parametrize("entry", [by_name, by_template])
def test_a_claim_with_an_invalid_name_or_namespace_is_not_looked_up(entry: Any, name: Any) -> None:
    assert list(claims_named(Workload(pod(entry(name))), ML)) == []
    assert list(claims_named(Workload(pod(by_name("fine"))), Request("../other"))) == []


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"apiVersion": "v1", "kind": "Pod"},
        {"apiVersion": "v1", "kind": "Pod", "spec": None},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"resourceClaims": "many"}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"resourceClaims": ["one", None, {}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": []},
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": "none"}},
    ],
)
def test_a_malformed_object_names_no_claims(obj: Any) -> None:
    assert list(claims_named(Workload(obj), ML)) == []


def test_an_entry_with_a_claim_and_a_template_uses_the_claim() -> None:
    entry = {**by_name("a"), **by_template("b")}
    assert list(claims_named(Workload(pod(entry)), ML)) == [ClaimName("resourceclaims", "ml", "a")]

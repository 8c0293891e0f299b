"""Claims are looked up when an object names them, within the time that there is."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusters import Counts, facts_of, named, policy
from controlplane.objects import claim_template
from fake_apiserver import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, FakeApiServer, eventually
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.workload import Workload
from specs import JSON
from webhook.cluster.claims import ClaimName, claims_named
from webhook.cluster.facts import ClusterFacts

ML = Request("ml")
GPU = Claim((frozenset({"gpu.nvidia.com"}),), names=("gpu",))


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


@dataclass
class Lookups:
    """The facts of a cluster with one claim and one template, and the results of lookups."""

    api: FakeApiServer
    cluster: ClusterFacts
    counts: Counts

    @property
    def results(self) -> Counter[str]:
        return self.counts.lookups

    async def resolve(self, *entries: JSON, seconds: float = 2.0) -> Facts:
        request = Request(namespace="ml")
        return await self.cluster.facts_for(request, Workload(pod(*entries)), seconds)

    def requests_for(self, path: str) -> int:
        return sum(asked.path == path for asked in self.api.requests)


@pytest.fixture
async def lookups(tmp_path: Path) -> AsyncIterator[Lookups]:
    api, counts = FakeApiServer(NODES, DEVICE_CLASSES, CLAIMS, CLAIM_TEMPLATES), Counts()
    api.put(CLAIMS, claim("shared", "gpu.nvidia.com"))
    api.put(CLAIM_TEMPLATES, template("one-gpu", "gpu.nvidia.com"))
    await api.start()
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        yield Lookups(api, cluster, counts)
    await api.stop()


async def test_claims_of_old_objects_and_workloads_are_resolved(lookups: Lookups) -> None:
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
    facts = await lookups.cluster.facts_for(Request(namespace="ml", old=old), Workload(new), 2.0)
    assert facts.claims == {("ml", "shared"): GPU}
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}


async def test_a_pod_without_claims_does_not_wait(lookups: Lookups) -> None:
    running = lookups.cluster.facts_for(Request(namespace="ml"), Workload(pod()), 2.0)
    with pytest.raises(StopIteration):
        running.send(None)  # the first step is the last: there was nothing to wait for
    assert not lookups.requests_for(f"{CLAIMS}/shared")


async def test_no_claim_is_looked_up_if_the_policy_has_no_device_classes(lookups: Lookups) -> None:
    lookups.cluster.use(policy(deviceClasses=[]))
    assert (await lookups.resolve(by_name("shared"))).claims == {}
    assert not lookups.requests_for(f"{CLAIMS}/shared")


async def test_a_replaced_claim_template_is_resolved_to_its_new_content(lookups: Lookups) -> None:
    facts = await lookups.resolve(by_template("one-gpu"))
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}
    lookups.api.remove(CLAIM_TEMPLATES, "one-gpu")
    lookups.api.put(CLAIM_TEMPLATES, template("one-gpu", "none.example.com"))
    facts = await lookups.resolve(by_template("one-gpu"))
    none = Claim((frozenset({"none.example.com"}),), names=("gpu",))
    assert facts.claim_templates == {("ml", "one-gpu"): none}
    assert lookups.results == {"found": 2}


async def test_waiting_reviews_share_one_lookup_that_starts_after_their_arrival(
    lookups: Lookups,
) -> None:
    path = f"{CLAIM_TEMPLATES}/one-gpu"
    held = lookups.api.blocked[path] = asyncio.Event()

    def start_resolving() -> list[asyncio.Task[Facts]]:
        given = (by_template("one-gpu") for _ in range(20))
        return [asyncio.create_task(lookups.resolve(entry)) for entry in given]

    first = start_resolving()
    await eventually(lambda: lookups.requests_for(path), "the request")
    # These start while the response is pending, and the template may change in between.
    later = start_resolving()
    await asyncio.sleep(0)
    held.set()
    answers = await asyncio.gather(*first, *later)
    assert all(facts.claim_templates == {("ml", "one-gpu"): GPU} for facts in answers)
    assert lookups.requests_for(path) == 2


async def test_a_late_response_leaves_only_that_claim_unresolved(lookups: Lookups) -> None:
    held = lookups.api.blocked[f"{CLAIMS}/shared"] = asyncio.Event()
    async with asyncio.timeout(3):  # The limit is half of the remaining time, or a second.
        facts = await lookups.resolve(by_name("shared"), by_template("one-gpu"), seconds=10)
    assert facts.claims == {}
    assert facts.claim_templates == {("ml", "one-gpu"): GPU}
    held.set()
    facts = await lookups.resolve(by_name("shared"))
    assert facts.claims == {("ml", "shared"): GPU}
    assert lookups.results == {"late": 1, "found": 2}


async def test_a_failed_lookup_leaves_claims_unresolved_and_is_logged_once(
    lookups: Lookups, caplog: pytest.LogCaptureFixture
) -> None:
    await lookups.resolve(by_name("shared"))
    lookups.api.errors[f"{CLAIMS}/shared"] = (500, "no leader")
    for _ in range(2):
        # An earlier result does not count: the claim may be another one now.
        assert (await lookups.resolve(by_name("shared"))).claims == {}
    lookups.api.errors.clear()
    assert (await lookups.resolve(by_name("shared"))).claims == {("ml", "shared"): GPU}
    assert lookups.results == {"failed": 2, "found": 2}
    records = [record for record in caplog.records if record.message == "claim lookup failed"]
    assert [record.__dict__["gpufence_fields"] for record in records] == [
        {"problem": "no leader (HTTP 500)"}
    ]
    assert records[0].levelno == logging.WARNING


async def test_a_malformed_claim_counts_as_a_failed_lookup(lookups: Lookups) -> None:
    lookups.api.put(CLAIMS, {**named("odd"), "spec": "none"})
    lookups.api.put(CLAIM_TEMPLATES, {**named("odd"), "spec": {"spec": ["none"]}})
    facts = await lookups.resolve(by_name("odd"), by_template("odd"))
    assert facts.claims == {}
    assert facts.claim_templates == {("ml", "odd"): Claim(())}, "a spec that asks for nothing"
    assert lookups.results == {"failed": 1, "found": 1}


async def test_a_claim_above_512_kib_stays_unresolved(lookups: Lookups) -> None:
    large = claim("large", "gpu.nvidia.com")
    large["metadata"]["annotations"] = {"a": "<" * 600 * 1024}
    lookups.api.put(CLAIMS, large)
    facts = await lookups.resolve(by_name("large"), by_name("shared"))
    assert set(facts.claims) == {("ml", "shared")}
    assert lookups.results == {"failed": 1, "found": 1}


async def test_an_object_with_more_claims_than_the_limit_causes_no_lookup(lookups: Lookups) -> None:
    await eventually(lambda: not lookups.cluster.unready(), "everything to be known")
    before = len([asked for asked in lookups.api.requests if not asked.is_watch])
    await lookups.resolve(*(by_name(f"claim-{number}") for number in range(1000)))
    after = len([asked for asked in lookups.api.requests if not asked.is_watch])
    assert after == before


async def test_pending_lookups_are_limited_while_the_api_server_is_silent(lookups: Lookups) -> None:
    names = [f"claim-{number}" for number in range(320)]
    held = asyncio.Event()
    lookups.api.blocked |= {f"{CLAIMS}/{name}": held for name in names}
    await asyncio.gather(
        *(
            lookups.resolve(*map(by_name, names[start : start + 32]), seconds=0.4)
            for start in range(0, 320, 32)
        )
    )
    held.set()
    assert lookups.results == {"late": 256, "failed": 64}


def test_a_claim_with_an_invalid_name_or_namespace_is_not_looked_up() -> None:
    paths = ("../../../../api/v1/secrets", "a/b", "%2e%2e", "a b")
    names: tuple[Any, ...] = (*paths, "UPPER", "", "a" * 254, 5, None, ["a"])
    entries = [entry(name) for name in names for entry in (by_name, by_template)]
    assert not [each for each in entries if list(claims_named(Workload(pod(each)), ML))]
    assert list(claims_named(Workload(pod(by_name("fine"))), Request("../other"))) == []
    grouped = in_group(by_template("fine"))
    grouped["spec"]["schedulingGroup"]["podGroupName"] = paths[0]
    assert list(claims_named(Workload(grouped), ML)) == []


def test_an_entry_with_a_claim_and_a_template_uses_the_claim() -> None:
    entry = {**by_name("a"), **by_template("b")}
    assert list(claims_named(Workload(pod(entry)), ML)) == [ClaimName("resourceclaims", "ml", "a")]


CREATED = "2026-06-01T12:00:00Z"


def in_group(*entries: JSON) -> JSON:
    obj = pod(*entries)
    obj["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return obj


def pod_group(*entries: JSON, **made: str) -> JSON:
    """Return a PodGroup with these claims, and the claims that were made for it by entry."""
    statuses = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
    return {
        "metadata": {"name": "train", "uid": "train-uid", "creationTimestamp": CREATED},
        "spec": {"resourceClaims": list(entries)},
        "status": {"resourceClaimStatuses": statuses},
    }


async def test_a_template_is_unresolved_if_the_claim_of_the_pod_s_group_may_take_its_place(
    lookups: Lookups, subtests: pytest.Subtests
) -> None:
    same = by_template("one-gpu")
    obj = Workload(in_group(same))
    for version in ("v1alpha2", "v1alpha3", "v1beta1"):
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/ml/podgroups"
        lookups.api.serve(path)
        for entries, is_resolved in (
            ([], True),
            ([same], False),
            ([{**same, "name": "other"}], True),
            ([by_template("other")], True),
        ):
            with subtests.test(entries=entries, version=version):
                lookups.api.put(path, pod_group(*entries))
                facts = await lookups.cluster.facts_for(ML, obj, 2.0)
                assert (("ml", "one-gpu") in facts.claim_templates) is is_resolved


@pytest.mark.parametrize(
    ("created", "is_resolved"), [("2026-06-01T11:59:59Z", True), (CREATED, False)]
)
async def test_a_template_that_is_older_than_the_pod_s_group_made_its_claim(
    lookups: Lookups, created: str, is_resolved: bool
) -> None:
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups"
    lookups.api.serve(path)
    template = by_template("aged")
    lookups.api.put(path, pod_group(template))
    aged = claim_template("aged", "gpu.nvidia.com")
    aged["metadata"]["creationTimestamp"] = created
    lookups.api.put(CLAIM_TEMPLATES, aged)
    facts = await lookups.cluster.facts_for(ML, Workload(in_group(template)), 2.0)
    assert (("ml", "aged") in facts.claim_templates) is is_resolved


@pytest.mark.parametrize("owner", ["train-uid", "another"])
async def test_the_claim_of_the_pod_s_group_takes_the_place_of_a_template(
    lookups: Lookups, owner: str
) -> None:
    same = by_template("one-gpu")
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups"
    lookups.api.serve(path)
    lookups.api.put(path, pod_group(same, **{same["name"]: "of-the-group"}))
    requests = [{"name": "old", "exactly": {"deviceClassName": "mig.nvidia.com"}}]
    metadata = {
        "name": "of-the-group",
        "ownerReferences": [{"uid": owner, "controller": True}],
    }
    lookups.api.put(CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": requests}}})
    facts = await lookups.cluster.facts_for(ML, Workload(in_group(same)), 2.0)
    found = facts.claim_templates.get(("ml", "one-gpu"))
    # Any client that may write the status of a group could name the claim of another one.
    assert (found and found.requests) == (
        (frozenset({"mig.nvidia.com"}),) if owner == "train-uid" else None
    )
    different = {**same, "name": "second"}
    facts = await lookups.cluster.facts_for(ML, Workload(in_group(same, different)), 2.0)
    assert ("ml", "one-gpu") not in facts.claim_templates


async def test_a_template_is_unresolved_if_its_group_is_unknown(
    lookups: Lookups, subtests: pytest.Subtests
) -> None:
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups/train"
    train = 'podgroups.scheduling.k8s.io "train"'
    for problem, is_resolved in (
        ((404, f"{train} not found"), False),  # It may be created later.
        ((404, "the server could not find the requested resource"), True),
        ((403, f"{train} is forbidden"), False),
    ):
        with subtests.test(problem=problem):
            lookups.api.errors[path] = problem
            obj = Workload(in_group(by_template("one-gpu")))
            facts = await lookups.cluster.facts_for(ML, obj, 2.0)
            assert (("ml", "one-gpu") in facts.claim_templates) is is_resolved
            facts = await lookups.cluster.facts_for(ML, Workload(in_group(by_name("shared"))), 2.0)
            assert ("ml", "shared") in facts.claims

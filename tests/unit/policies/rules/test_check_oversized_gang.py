"""Which workloads never run as a whole, besides the cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from deciding import POOL, pod, policy
from each import each
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.claims import Claim
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
from policies.rules import check_oversized_gang
from strategies import JSON

NAMES = {"gpu": "nvidia.com/gpu", "nic": "example.com/nic"}
POLICY = policy(pools=[POOL | {"resources": [*POOL["resources"], NAMES["nic"]]}])
CLAIMS = {("default", "one"): Claim((frozenset({"gpu.nvidia.com", "other"}),))}


def devices(row: JSON) -> dict[str, int]:
    return {NAMES[key]: number for key, number in row.items() if key in NAMES}


def labels(row: JSON) -> dict[str, str]:
    return {key: value for key, value in row.items() if key in ("zone", "rack")}


def template(row: JSON) -> JSON:
    """Return a Pod; ``claim`` names the template of a claim."""
    claims = [{"name": "c", "resourceClaimTemplateName": row["claim"]}] if "claim" in row else []
    resources = {"limits": devices(row), "claims": [{"name": "c"}] if claims else []}
    return pod({"resources": resources}, nodeSelector=labels(row), resourceClaims=claims)


def job_set(jobs: list[JSON], in_racks: bool = False) -> JSON:
    topology = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"} if in_racks else {}
    specs = [{"parallelism": row.get("pods", 1), "template": template(row)} for row in jobs]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": topology},
        "spec": {"replicatedJobs": [{"template": {"spec": spec}} for spec in specs]},
    }


def said(obj: JSON, nodes: list[JSON], added: tuple[JSON, ...] = (), **facts: Any) -> str:
    known = Facts(
        nodes=NodeIndex(
            Node(str(n), POOL["nodeSelector"] | labels(row), (), devices(row))
            for n, row in enumerate(nodes)
        ),
        templates=tuple(
            NodeTemplate(
                str(n),
                POOL["nodeSelector"],
                allocatable=devices(row),
                limits=devices(row.get("limits", {})),
            )
            for n, row in enumerate(added)
        ),
        claim_templates=CLAIMS,
        **facts,
    )
    decision = decide(obj, POLICY, facts=known)
    assert not decision.failures
    own = [each for each in decision.findings if each.rule == check_oversized_gang.ID]
    return " ".join(f"{each.detail}. {each.remediation}" for each in own)


def test_a_workload_whose_pods_do_not_fit_together_is_reported() -> None:
    rows: list[JSON] = yaml.safe_load(Path(__file__).with_name("oversized_gangs.yaml").read_text())

    def says(row: JSON) -> None:
        facts: JSON = {}
        if "fewest" in row:
            facts["gangs"] = {("default", "JobSet/train"): row["fewest"]}
        if "quota" in row:
            facts["quotas"] = {"default": {NAMES["gpu"]: row["quota"]}}
        made = job_set(row["jobs"], row.get("in_racks", False))
        text = said(made, row["nodes"], tuple(row.get("added", ())), **facts)
        assert row.get("says", "") in text, text
        assert bool(text) is ("says" in row), text

    each(rows, says)


def test_many_templates_and_many_domains_are_not_compared() -> None:
    of_one = {"gpu": 8}
    for parts in (20, 21):
        assert bool(said(job_set([of_one] * parts), [of_one])) is (parts == 20)
    for racks in (1000, 1001):
        nodes = [{"gpu": 8, "rack": str(number)} for number in range(racks)]
        text = said(job_set([{"pods": 2, "gpu": 8}], in_racks=True), nodes)
        assert bool(text) is (racks == 1000)


def test_a_workload_may_start_with_fewer_pods_than_it_has() -> None:
    task = {"name": "a", "replicas": 9, "template": template({"gpu": 8})}
    spec = {"minAvailable": 1, "tasks": [task]}
    obj = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "spec": spec}
    assert not said(obj, [{"gpu": 8}])
    assert said(obj | {"spec": spec | {"minAvailable": 2}}, [{"gpu": 8}])

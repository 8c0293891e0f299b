"""Custom resources as people write them: judged, or reported as not judged, with the place.

Each file has two documents: what is expected (the verdict, and the paths of the findings and of the
parts that are not judged), and a minimal manifest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases.loading import compiled, policy_document
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.template import field_path
from policies.policy import Exemptions, Policy

JSON = dict[str, Any]

MANIFESTS = sorted(Path(__file__).parent.glob("custom_resources/*.yaml"))
CLAIMS = {("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))}
GPU = {"limits": {"nvidia.com/gpu": 1}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return compiled(policy_document("default"))


def workflow(*templates: JSON, **spec: Any) -> JSON:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w"},
        "spec": {"templates": list(templates), **spec},
    }


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_custom_resource_has_the_expected_verdict_and_paths(
    manifest: Path, policy: Policy
) -> None:
    expected, obj = yaml.safe_load_all(manifest.read_text())
    decision = decide(obj, policy)
    places = [finding.path for finding in decision.findings]
    places += [field_path(part.path) for part in decision.unjudged]
    assert (decision.verdict, places) == (expected["verdict"], expected.get("paths", []))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_second_decision_mutates_nothing(manifest: Path, policy: Policy) -> None:
    _, obj = yaml.safe_load_all(manifest.read_text())
    mutated = decide(obj, policy).mutated
    assert decide(mutated, policy).mutated == mutated


def test_resource_claims_of_a_workflow_apply_to_its_steps(policy: Policy) -> None:
    container = {"image": "a", "resources": {"claims": [{"name": "gpu"}]}}
    obj = workflow(
        {"name": "a", "container": container},
        tolerations=[TOLERATION],
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}],
    )
    assert decide(obj, policy, facts=Facts(claim_templates=CLAIMS)).verdict == "mutated"


def test_volume_mounts_of_a_container_set_apply_to_its_containers(policy: Policy) -> None:
    containers = {
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        "containers": [{"name": "main", "image": "a", "resources": GPU}],
    }
    obj = workflow(
        {"name": "a", "containerSet": containers},
        volumes=[{"name": "cache", "hostPath": {"path": "/cache"}}],
    )
    [finding] = decide(obj, policy).findings
    assert finding.path == "spec.volumes[0].hostPath"


def test_an_object_with_unjudged_parts_is_allowed_in_an_exempt_namespace(policy: Policy) -> None:
    cache: JSON = {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "spec": {}}
    assert decide(cache, policy).verdict == "unknown"
    decision = decide(cache, policy, Request(namespace="gpu-operator"))
    assert decision.verdict == "allowed"
    assert decision.exemption == "the policy exempts namespace gpu-operator"


def test_an_exempt_runtime_class_does_not_exempt_unjudged_parts(policy: Policy) -> None:
    exempting = replace(policy, exemptions=Exemptions(runtime_classes=frozenset({"kata"})))
    cache: JSON = {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "spec": {}}
    assert decide(cache, exempting).verdict == "unknown"

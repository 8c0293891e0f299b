"""Every path that a finding names leads to a place in the file that it was found in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from cases.loading import cases_of_check, cases_of_mutation, compiled, policy_document
from policies.engine import decide
from policies.finding import Finding
from policies.kubernetes.objects import JSONObject
from policies.registry import CHECKS, MUTATIONS
from webhook.documents.documents import Document, read_documents
from webhook.documents.fields import locate

CASES = [
    *(case for check in CHECKS for case in cases_of_check(check.id) if not case.passes),
    *(
        case
        for mutation in MUTATIONS
        for case in cases_of_mutation(mutation.id)
        if case.expected.exists()
    ),
]

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
UNMASKED = {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}
PRIVILEGED = {"name": "main", "image": "i", "securityContext": {"privileged": True}, **GPU}

# Pods that are composed of pieces, and templates below arbitrary keys.
CUSTOM: list[tuple[str, str, JSONObject]] = [
    (
        "argoproj.io/v1alpha1",
        "Workflow",
        {
            "tolerations": [{"operator": "Exists"}],
            "templates": [
                {"name": "plain", "container": {"image": "i"}},
                {
                    "name": "train",
                    "metadata": {"annotations": UNMASKED},
                    "script": PRIVILEGED,
                    "sidecars": [{**PRIVILEGED, "name": "sidecar"}],
                },
            ],
        },
    ),
    (
        "serving.kserve.io/v1beta1",
        "InferenceService",
        {
            "predictor": {
                "containers": [PRIVILEGED],
                "model": {**GPU, "securityContext": {"runAsUser": 0}},
            }
        },
    ),
    (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {"trainer": {"resourcesPerNode": {"requests": {"nvidia.com/gpu": "0.5"}}}},
    ),
    (
        "example.com/v1",
        "Train",
        {"roles": {"big.worker": {"template": {"spec": {"containers": [PRIVILEGED]}}}}},
    ),
    (
        "example.com/v1",
        "Train",
        {"pod": {"spec": {"containers": [{"image": "i"}], "tolerations": [TOLERATION]}}},
    ),
]


def text_of(custom: tuple[str, str, JSONObject]) -> str:
    version, kind, spec = custom
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    return str(yaml.safe_dump(obj, sort_keys=False))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_findings_of_each_rule_case_are_located(case: Any) -> None:
    *_, document = read_documents("f", case.manifest.read_text())
    assert_located(document, case.decide().findings)


@pytest.mark.parametrize("action", ["enforce", "warn"])
@pytest.mark.parametrize("custom", CUSTOM, ids=lambda custom: custom[1])
def test_findings_of_custom_resources_are_located(
    custom: tuple[str, str, JSONObject], action: str
) -> None:
    """With the mutations on warn, findings name what they would add."""
    [document] = read_documents("f", text_of(custom))
    rules = {mutation.id: action for mutation in MUTATIONS}
    policy = compiled(policy_document("default") | {"rules": rules})
    [obj] = yaml.safe_load_all(document.text)
    assert_located(document, decide(obj, policy).findings)


def assert_located(document: Document, findings: Iterable[Finding]) -> None:
    """Hold every path against the object, and its place against that of what there is of it."""
    paths = [path for finding in findings for path in (finding.path, *added(finding))]
    assert paths
    [obj] = yaml.safe_load_all(document.text)
    for path in paths:
        there, missing = follow(obj, path)
        # A missing step is a field, or an entry that a mutation would append to a list.
        assert all(step.startswith(".") for step in missing[:-1]), path
        assert not missing or missing[-1].startswith(".") or re.search(r"\[\d+\]$", path), path
        place = locate(document, (), path)
        assert place is not None, path
        assert place == locate(document, (), there)


def added(finding: Finding) -> Iterator[str]:
    """Yield the paths of what a mutation that is not on enforce would add."""
    match = re.match(r"gpufence does not add (?P<all>.*), because the policy sets", finding.detail)
    rest = match["all"] if match else ""
    while rest:
        path, _, rest = rest.partition(": ")
        yield path
        _, end = json.JSONDecoder().raw_decode(rest)
        rest = rest[end:].removeprefix("; ")


def follow(obj: Any, path: str) -> tuple[str, list[str]]:
    """Return how far a path leads into the object, and the steps that lead to nothing."""
    steps = re.findall(r"\.[^.\[]+|\[[^\]]*\]", f".{path}")
    assert "".join(steps) == f".{path}"
    for done, step in enumerate(steps):
        key = step.strip(".[]")
        if isinstance(obj, list) and step.startswith("[") and int(key) < len(obj):
            obj = obj[int(key)]
        elif isinstance(obj, dict) and key in obj:
            obj = obj[key]
        else:
            return "".join(steps[:done]).removeprefix("."), steps[done:]
    return path, []

"""The CheckReport: its form, and the law of its patches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from running import (
    CONFIG_MAP,
    FAULT_PLACES,
    FAULTS,
    GPU_POD,
    PLAIN_POD,
    TRESPASSER,
    Run,
    manifest,
)

GPU_TEMPLATE = manifest("""
    apiVersion: batch/v1
    kind: CronJob
    metadata:
      name: nightly
    spec:
      jobTemplate:
        spec:
          template:
            spec:
              tolerations: []
              initContainers:
                - name: fetch
                  image: curl:8
              containers:
                - name: train
                  image: pytorch:2.9
                  resources:
                    requests:
                      nvidia.com/gpu: "2"
    """)


def as_list(*texts: str, kind: str = "List", api_version: str = "v1") -> dict[str, Any]:
    items = [yaml.safe_load(text) for text in texts]
    return {"apiVersion": api_version, "kind": kind, "items": items}


def test_the_json_report_has_the_documented_structure(gpufence: Run) -> None:
    done = gpufence("check", "--output", "json", "-", stdin=f"{TRESPASSER}---\n{CONFIG_MAP}")
    assert done.status == 1
    report = done.report
    findings = report["results"][0].pop("findings")
    assert report == {
        "apiVersion": "gpufence.dev/v1alpha1",
        "kind": "CheckReport",
        "policy": "default",
        "summary": {
            "objects": 2,
            "allowed": 0,
            "mutated": 0,
            "denied": 1,
            "unknown": 0,
            "skipped": 1,
            "invalid": 0,
        },
        "results": [
            {
                "source": {"path": "<stdin>", "document": 0, "item": None, "line": 1},
                "object": {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "namespace": "default",
                    "name": "web",
                },
                "verdict": "denied",
                "warnings": 0,
                "excepted": [],
                "unjudged": [],
                "patch": [],
            },
            {
                "source": {"path": "<stdin>", "document": 1, "item": None, "line": 15},
                "object": {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "namespace": None,
                    "name": "settings",
                },
                "verdict": "skipped",
                "warnings": 0,
                "findings": [],
                "excepted": [],
                "unjudged": [],
                "patch": [],
            },
        ],
    }
    (finding,) = findings
    assert list(finding) == [
        "rule",
        "action",
        "path",
        "line",
        "column",
        "reason",
        "detail",
        "remediation",
        "fix",
    ]
    assert finding["rule"] == "pool-trespass"
    assert finding["action"] == "enforce"
    assert finding["path"] == "spec.template.spec.tolerations[0]"
    assert (finding["line"], finding["column"]) == (9, 11)
    assert all(finding.values())


def test_each_finding_has_the_position_of_its_field(gpufence: Run) -> None:
    report = gpufence("check", "--output", "json", "-", stdin=FAULTS).report
    findings = [finding for result in report["results"] for finding in result["findings"]]
    assert len(findings) == 3
    for finding in findings:
        line, column, _ = FAULT_PLACES[finding["rule"]]
        assert (finding["line"], finding["column"]) == (line, column)


def test_excepted_findings_are_listed_separately(gpufence: Run, tmp_path: Path) -> None:
    policy = gpufence("policy", "show").out
    exception = "exceptions: [{namespaces: [shop], reason: legacy}]\n"
    (tmp_path / "policy.yaml").write_text(policy + exception)
    done = gpufence("check", "-o", "json", "--policy", "policy.yaml", "-", stdin=FAULTS)
    deployment, pod = done.report["results"]
    assert (deployment["verdict"], pod["verdict"]) == ("allowed", "denied")
    assert [finding["rule"] for finding in deployment["excepted"]] == ["pool-trespass"]
    assert deployment["findings"] == pod["excepted"] == []


def test_input_without_objects_gives_an_empty_report(gpufence: Run) -> None:
    done = gpufence("check", "--output", "json", "-", stdin="")
    assert done.status == 2
    assert done.report["results"] == []
    assert done.report["summary"]["objects"] == 0


def test_an_invalid_object_has_an_error_and_no_patch(gpufence: Run) -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: 1}\n"
    (result,) = gpufence("check", "--output", "json", "-", stdin=text).report["results"]
    assert result == {
        "source": {"path": "<stdin>", "document": 0, "item": None, "line": 1},
        "object": {"apiVersion": "v1", "kind": "Pod", "namespace": None, "name": "p"},
        "verdict": "invalid",
        "warnings": 0,
        "unjudged": [],
        "findings": [],
        "excepted": [],
        "patch": [],
        "error": "<stdin>:4:8: document 1: spec.containers: must be a list, but is a whole number.",
    }


def test_document_indexes_match_those_of_the_yaml_parser(gpufence: Run) -> None:
    text = f"# a licence\n---\n{PLAIN_POD}---\n# empty\n---\n{GPU_POD}---\n"
    done = gpufence("check", "--output", "json", "-", stdin=text)
    documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    for result in done.report["results"]:
        source = result["source"]
        assert source["line"] == documents[source["document"]].start_mark.line + 1
    assert [result["source"]["document"] for result in done.report["results"]] == [0, 2]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (yaml.safe_dump(as_list(PLAIN_POD, GPU_POD, TRESPASSER), sort_keys=False), "- "),
        (json.dumps(as_list(PLAIN_POD, GPU_POD, TRESPASSER) | {"metadata": {}}, indent=2), "    {"),
    ],
    ids=["YAML", "JSON"],
)
def test_each_item_of_a_list_is_reported_with_its_line(
    gpufence: Run, text: str, start: str
) -> None:
    report = gpufence("check", "--output", "json", "-", stdin=text).report
    lines = text.splitlines()
    sources = [result["source"] for result in report["results"]]
    assert [source["item"] for source in sources] == [0, 1, 2]
    assert all(lines[source["line"] - 1].startswith(start) for source in sources)
    assert len({source["line"] for source in sources}) == 3
    assert [result["verdict"] for result in report["results"]] == ["allowed", "mutated", "denied"]


DOCUMENTS = {
    "a Pod": GPU_POD,
    "a template": GPU_TEMPLATE,
    "anchors": GPU_POD.replace("limits:", "limits: &all").replace(
        "nvidia.com/gpu: 1", "nvidia.com/gpu: 1\n      requests: *all"
    ),
    "a Pod that sets mutated fields": GPU_POD.replace(
        "spec:\n", "spec:\n  tolerations: null\n  securityContext: {runAsUser: 1000}\n"
    ),
    "a List": json.dumps(as_list(PLAIN_POD, GPU_POD, TRESPASSER, GPU_TEMPLATE)),
    "a List in a List": json.dumps({**as_list(), "items": [as_list(GPU_POD, GPU_TEMPLATE)]}),
    "a PodList": json.dumps(as_list(GPU_POD, GPU_POD, kind="PodList")),
    "several documents": f"{GPU_POD}---\n{PLAIN_POD}---\n{GPU_TEMPLATE}",
}


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_applying_the_patches_yields_the_output_of_mutate(gpufence: Run, text: str) -> None:
    documents = list(yaml.safe_load_all(text))
    report = gpufence("check", "--output", "json", "-", stdin=text).report
    assert any(result["patch"] for result in report["results"])
    for result in report["results"]:
        index = result["source"]["document"]
        documents[index] = jsonpatch.apply_patch(documents[index], result["patch"])
    mutated = gpufence("mutate", "-", stdin=text)
    assert documents == list(yaml.safe_load_all(mutated.out))
    assert documents != list(yaml.safe_load_all(text))

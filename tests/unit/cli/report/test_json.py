"""The CheckReport: its form, and the law of its patches."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest
import yaml

from running import GPU_POD, PLAIN_POD, TRESPASSER, Run, manifest

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


def test_each_item_of_a_list_is_reported_with_its_line(
    gpufence: Run, subtests: pytest.Subtests
) -> None:
    items = as_list(PLAIN_POD, GPU_POD, TRESPASSER)
    for text, start in (
        (yaml.safe_dump(items, sort_keys=False), "- "),
        (json.dumps(items | {"metadata": {}}, indent=2), "    {"),
    ):
        with subtests.test(start=start):
            results = gpufence("check", "--output", "json", "-", stdin=text).report["results"]
            places = [result["source"] for result in results]
            assert [place["item"] for place in places] == [0, 1, 2]
            assert all(text.splitlines()[place["line"] - 1].startswith(start) for place in places)
            assert len({place["line"] for place in places}) == 3
            assert [result["verdict"] for result in results] == ["allowed", "mutated", "denied"]


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


def test_applying_the_patches_yields_the_output_of_mutate(
    gpufence: Run, subtests: pytest.Subtests
) -> None:
    for name, text in DOCUMENTS.items():
        with subtests.test(name):
            documents = list(yaml.safe_load_all(text))
            report = gpufence("check", "--output", "json", "-", stdin=text).report
            assert any(result["patch"] for result in report["results"])
            for result in report["results"]:
                index = result["source"]["document"]
                documents[index] = jsonpatch.apply_patch(documents[index], result["patch"])
            mutated = gpufence("mutate", "-", stdin=text)
            assert documents == list(yaml.safe_load_all(mutated.out))
            assert documents != list(yaml.safe_load_all(text))

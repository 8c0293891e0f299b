"""`gpufence mutate`: the manifests as they become."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from paths import CASES
from policies.engine import decide
from policies.facts import Request
from policies.policy import Policy
from running import BROKEN, CONFIG_MAP, GPU_POD, NO_QUANTITY, PLAIN_POD, TRESPASSER, Run, manifest
from specs import default_spec, policy_of
from webhook.documents.files import read_documents
from webhook.tools.custom_resources import workload


@cache
def default_policy() -> Policy:
    return policy_of(default_spec())


def decided(document: Any) -> Any:
    namespace = (document.get("metadata") or {}).get("namespace") or "default"
    policy = default_policy()
    return decide(workload(document, policy), policy, Request(namespace=namespace)).mutated


def test_unchanged_documents_are_printed_in_input_order(gpufence: Run) -> None:
    values = "# values\nreplicas: 3\n"
    text = "---\n".join([CONFIG_MAP, "# nothing\n", GPU_POD, values, PLAIN_POD])
    done = gpufence("mutate", "-", stdin=text)
    assert done.status == 0
    before, after = list(yaml.safe_load_all(text)), list(yaml.safe_load_all(done.out))
    assert [after[0], after[2], after[3]] == [before[0], before[3], before[4]]
    assert after[1] == decided(before[2])


def test_keys_keep_their_order_and_strings_their_quotes(gpufence: Run) -> None:
    text = manifest("""
        kind: ConfigMap
        apiVersion: v1
        data:
          z: "on"
          "y": "1e3"
          a: |
            two
            lines
          flow: "a: b"
        metadata:
          name: settings
        """)
    assert gpufence("mutate", "-", stdin=text).out == text


def test_lists_are_printed_as_lists_with_mutated_items(gpufence: Run) -> None:
    items = [yaml.safe_load(text) for text in (PLAIN_POD, GPU_POD)]
    pods = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}}
    for item in items:
        del item["apiVersion"], item["kind"]
    done = gpufence("mutate", "-", stdin=json.dumps({**pods, "items": items}))
    document = yaml.safe_load(done.out)
    assert {key: document[key] for key in pods} == pods
    typed = {"apiVersion": "v1", "kind": "Pod"}
    assert [{**typed, **item} for item in document["items"]] == [
        decided({**typed, **item}) for item in items
    ]
    assert "kind" not in document["items"][1]


def test_denied_objects_are_printed_and_reported(gpufence: Run) -> None:
    done = gpufence("mutate", "-", stdin=f"{TRESPASSER}---\n{GPU_POD}")
    assert done.status == 1
    assert len(list(yaml.safe_load_all(done.out))) == 2
    (line,) = done.err.splitlines()
    assert line.startswith("Denied: <stdin>:1: Deployment default/web: pool-trespass: ")
    assert "spec.template.spec.tolerations[0]" in line


def test_no_help_example_pipes_the_output_to_kubectl_apply(gpufence: Run) -> None:
    """The status of what stands in the middle of a pipe comes too late."""
    examples = " ".join(gpufence("mutate", "--help").out.split())
    assert "| kubectl apply" not in examples
    assert "gpufence mutate - > mutated.yaml && kubectl apply -f mutated.yaml" in examples


@pytest.mark.parametrize("broken", [BROKEN, NO_QUANTITY])
def test_invalid_input_prints_no_manifests(gpufence: Run, broken: str) -> None:
    done = gpufence("mutate", "-", stdin=f"{GPU_POD}---\n{broken}")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Error: <stdin>:")
    assert "document 2: " in done.err


def test_every_rule_case_is_printed_as_mutated_by_the_engine(gpufence: Run) -> None:
    manifests = sorted({*CASES.rglob("*.yaml")} - {*CASES.rglob("*expected.yaml")})
    paths = [path for path in manifests if "resource.k8s.io" not in path.read_text()]
    checked = gpufence("check", "--output", "json", *paths).report["results"]
    broken = {result["source"]["path"] for result in checked if result["verdict"] == "invalid"}
    sound = [path for path in paths if str(path) not in broken]
    assert len(sound) > 100
    before = [
        document.value for path in sound for document in read_documents(str(path), path.read_text())
    ]
    done = gpufence("mutate", *sound)
    after = [document.value for document in read_documents("after", done.out)]
    assert after == [decided(d) if isinstance(d, dict) and "kind" in d else d for d in before]
    assert gpufence("mutate", "-", stdin=done.out).out == done.out

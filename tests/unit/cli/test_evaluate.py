"""Verdicts on documents with duplicate keys, and on templates and patches.

The verdict is on what kubectl reads, and a key that is set twice is a warning. Templates and
patches in directories are skipped with a note, and errors with --strict.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from each import each
from paths import PROJECT
from running import GPU_POD, PLAIN_POD, Run
from webhook.documents.files import read_documents

TWICE = GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 1\n          nvidia.com/gpu: 2")
"""A Pod that requests 1 GPU in one line, and 2 in the next."""


def test_a_duplicate_key_is_a_warning_and_the_second_value_is_judged(gpufence: Run) -> None:
    done = gpufence("check", "-o", "json", "-", stdin=TWICE)
    assert done.status == 0
    [result] = done.report["results"]
    line = next(n for n, text in enumerate(TWICE.splitlines(), 1) if text.endswith("gpu: 2"))
    assert result["verdict"] == "mutated"
    assert {
        "op": "add",
        "path": "/spec/containers/0/resources/requests",
        "value": {"nvidia.com/gpu": 2},
    } in result["patch"]
    warning = (
        f"<stdin>:{line}:11: document 1: the key nvidia.com/gpu is already set above in the same "
        "mapping. Remove one of the two: kubectl uses the second and drops the first."
    )
    assert result["note"] == warning
    assert f"Warning: {warning}\n" in done.err
    shown = gpufence("check", "-", stdin=TWICE)
    assert shown.out.startswith("mutated  Pod ml/train")
    assert f"Warning: {warning}\n" in shown.err


def test_a_duplicate_key_in_a_list_item_is_reported_with_that_item(gpufence: Run) -> None:
    text = """apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: b}
  kind: ConfigMap
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
"""
    results = gpufence("check", "-o", "json", "-", stdin=text).report["results"]
    notes = {result["object"]["name"]: result.get("note", "") for result in results}
    assert notes["b"].startswith("<stdin>:8:3: ")
    assert notes["a"] == notes["c"] == ""


def test_a_duplicate_json_key_is_a_warning_and_the_second_value_is_judged(gpufence: Run) -> None:
    text = '{"apiVersion": "v1", "kind": "Pod",\n"kind": "ConfigMap", "metadata": {"name": "a"}}'
    [result] = gpufence("check", "-o", "json", "-", stdin=text).report["results"]
    assert (result["object"]["kind"], result["verdict"]) == ("ConfigMap", "skipped")
    assert result["note"].startswith("<stdin>:2:1: document 1: the key kind is set twice")


def test_mutate_policy_validate_and_test_reject_duplicate_keys(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "twice.yaml").write_text(TWICE)
    policy = gpufence("policy", "show").out
    (tmp_path / "policy.yaml").write_text(f"{policy}\nkind: FencePolicy\n")
    (tmp_path / "suite.yaml").write_text("kind: FenceTest\nkind: FenceTest\n")
    for command in ("mutate twice.yaml", "policy validate policy.yaml", "test suite.yaml"):
        with subtests.test(command=command):
            done = gpufence(*command.split())
            assert (done.status, done.out) == (2, "")
            assert "is already set above" in done.err


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_kubectl_also_uses_the_second_value_of_a_duplicate_key(
    kubectl_binary: Path, form: str
) -> None:
    text = TWICE
    if form == "json":
        limits = '{"nvidia.com/gpu": 1, "nvidia.com/gpu": 2}'
        pod = yaml.safe_load(GPU_POD)
        text = json.dumps(pod).replace('{"nvidia.com/gpu": 1}', limits)
    done = subprocess.run(
        [kubectl_binary, "annotate", "--local", "-f", "-", "a=b", "-o", "json"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    [document] = read_documents("pod", text)
    assert document.duplicate is not None
    for read in (document.value, json.loads(done.stdout)):
        [(name, quantity)] = read["spec"]["containers"][0]["resources"]["limits"].items()
        assert (name, int(quantity)) == ("nvidia.com/gpu", 2)


TEMPLATE = "apiVersion: v1\nkind: Pod\nmetadata: {{ .Values.metadata }}\n"
PATCH = "kind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n"
PLACEHOLDER = GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: ${GPUS}")
NOTES = {
    "template.yaml": (TEMPLATE, "is a template, with placeholders such as {{ }}"),
    "patch.yaml": (PATCH, "has no apiVersion, as a patch may"),
    "fragment.yaml": ("apiVersion: v1\nmetadata: {name: web}\n", "has no kind, as a patch may"),
    "sed.yaml": (
        TEMPLATE.replace("{{", "@NAME@ #"),
        "is a template, with placeholders such as {{ }}",
    ),
    "placeholder.yaml": (
        PLACEHOLDER,
        "spec.containers[0].resources.limits[nvidia.com/gpu] is the placeholder ${GPUS}",
    ),
    "binding.yaml": (
        PLACEHOLDER.replace("${GPUS}", "($gpus)"),
        "spec.containers[0].resources.limits[nvidia.com/gpu] is the placeholder ($gpus)",
    ),
    "mkdocs.yml": (
        "emoji: !!python/name:twemoji\n",
        "names no apiVersion, and the tag !!python/name:twemoji has no meaning in Kubernetes",
    ),
    "status.yaml": (
        "apiVersion: v1\nkind: Pod\nstatus: {phase: Running}\n",
        "has no spec, as a patch may",
    ),
}


def test_a_template_or_patch_in_a_directory_is_skipped_with_a_note(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "apps").mkdir()
    for name, (text, _) in NOTES.items():
        (tmp_path / "apps" / name).write_text(text)
    (tmp_path / "apps" / "pod.yaml").write_text(PLAIN_POD)
    done = gpufence("check", "apps")
    assert done.status == 0
    assert done.err == (
        "Note: skipped 8 documents with placeholders, or without apiVersion or kind. "
        "To report them as errors, add --strict.\n"
    )
    for name, (_, note) in NOTES.items():
        [line] = [line for line in done.out.splitlines() if f"apps/{name}:" in line]
        assert (line[:9], line.endswith(f"  {note}")) == ("skipped  ", True), line
        assert gpufence("check", f"apps/{name}").status == 2
    found = gpufence("check", "-o", "json", "apps").report["results"]
    assert {each["note"] for each in found if "note" in each} == {
        note for _, note in NOTES.values()
    }
    strict = gpufence("check", "--strict", "-o", "json", "apps")
    assert (strict.status, sorted(strict.verdicts)) == (2, ["allowed", *["invalid"] * 8])
    assert gpufence("mutate", "apps").status == 2


def test_strict_fails_for_a_document_that_is_no_object(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    for path in (".", "values.yaml"):
        assert gpufence("check", path).status == 0
        assert gpufence("check", "--strict", path).status == 1


def test_odd_files_end_with_a_verdict_or_an_error(gpufence: Run) -> None:
    """A fuzzer found them: each was a crash, or an error beyond the end of the text."""

    def is_read(path: Path) -> None:
        assert gpufence("check", path).status in (0, 1, 2)

    each((PROJECT / "tests/unit/documents/findings").iterdir(), is_read)

"""The objects of documents, and the places of their fields: each path of a finding has one."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from cases.loading import Case, cases_of_check, cases_of_mutation, compiled, load_all
from each import each
from policies.engine import decide
from policies.finding import Finding
from policies.registry import CHECKS, MUTATIONS
from webhook.documents import objects as module
from webhook.documents.document import Document
from webhook.documents.files import read_documents
from webhook.documents.objects import locate, read_objects

TEXT = """\
# a comment
---
kind: Pod
metadata:
  labels: &labels
    app.kubernetes.io/name: web
spec:
  containers:
    - name: a
      resources:
        limits: {cpu: 1,
                 nvidia.com/gpu: 2}
    - name: b
      env:
      - <<: {name: X}
        value: "1"
  copies: *labels
"""


def only(text: str) -> Document:
    (document,) = read_documents("f", text)
    return document


def test_locate_returns_the_position_of_a_field_or_its_nearest_parent() -> None:
    places = {
        "kind": (3, 1),
        "spec": (7, 1),
        "spec.containers": (8, 3),
        "spec.containers[0]": (9, 7),
        "spec.containers[1].name": (13, 7),
        "spec.containers[0].resources.limits[nvidia.com/gpu]": (12, 18),
        "metadata.labels[app.kubernetes.io/name]": (6, 5),
        "spec.containers[1].env[0].name": (15, 14),
        "spec.containers[1].env[0].value": (16, 9),
        # An alias is what its anchor is.
        "spec.copies[app.kubernetes.io/name]": (6, 5),
        # What is not there is where the nearest thing is that is.
        "spec.containers[7].name": (8, 3),
        "spec.securityContext.runAsUser": (7, 1),
        "metadata.labels[...]": (5, 3),
        "spec.containers[0].name (a key)": (9, 7),
    }
    assert {field: (locate(only(TEXT), (), field) or ())[:2] for field in places} == places


def test_the_position_of_a_field_ends_on_the_line_of_its_start() -> None:
    texts = {
        "kind": "kind: Pod",
        "spec": "spec",
        "spec.containers[0]": "name: a",
        "spec.containers[0].name": "name: a",
        "spec.containers[0].resources": "resources",
        "spec.containers[0].resources.limits": "limits",
        "spec.containers[0].resources.limits.cpu": "cpu: 1",
        "spec.containers[1].env[0].name": "name: X",
        "spec.copies": "copies",
    }
    found = {}
    for field in texts:
        line, column, end = locate(only(TEXT), (), field) or (1, 1, 1)
        found[field] = TEXT.splitlines()[line - 1][column - 1 : end - 1]
    assert found == texts


def test_fields_of_the_second_json_value_are_located() -> None:
    text = '{"kind": "A"}\n{"kind": "B",\n "spec": {}}\n'
    second = list(read_documents("f", text))[1]
    assert locate(second, (), "spec") == (3, 2, 12)


def test_merges_of_merges_are_searched_once() -> None:
    """Each of the 40 lines names the one before eight times: 8 ** 40 ways."""
    merges = [f"l{i}: &l{i} {{<<: [{', '.join([f'*l{i - 1}'] * 8)}]}}" for i in range(1, 40)]
    document = only("\n".join(["l0: &l0 {k: v}", *merges, "spec: {<<: *l39, x: y}"]))
    assert document.error is None
    assert locate(document, (), "spec.k") == (1, 10, 14)
    assert locate(document, (), "spec.missing") == (41, 1, 23)


def test_the_nodes_of_one_document_are_kept() -> None:
    """They take 50 times the memory of its text, and a run has thousands of documents."""

    def nodes() -> int:
        return sum(isinstance(each, yaml.Node) for each in gc.get_objects())

    documents = [only(TEXT) for _ in range(3)]
    assert locate(documents[0], (), "kind") == (3, 1, 10)
    of_one = nodes()
    assert [locate(document, (), "kind") for document in documents] == [(3, 1, 10)] * 3
    assert nodes() == of_one


def test_a_field_below_a_duplicate_key_is_located_in_the_value_that_counts() -> None:
    twice = "a: {k: 1}\na: {k: 2}\n"
    assert only(twice).value == {"a": {"k": 2}}
    assert locate(only(twice), (), "a.k") == (2, 5, 9)


def test_fields_of_documents_above_the_size_limit_have_no_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", 10)
    assert locate(only(TEXT), (), "kind") is None


def test_findings_of_each_rule_case_are_located() -> None:
    def located(case: Case) -> None:
        document = list(read_documents("f", case.manifest.read_text()))[case.document]
        findings = case.decide().findings
        assert findings
        assert_located(document, findings)
        # Findings name what mutations on warn would add.
        obj, policy, request, facts = case.read()
        warned = {"unrestricted-gpu-pod": "enforce"} | policy["rules"]
        warned |= {mutation.id: "warn" for mutation in MUTATIONS}
        known = compiled(policy | {"rules": warned})
        assert_located(document, decide(obj, known, request, facts).findings)

    checked = (case for check in CHECKS for case in cases_of_check(check.id) if not case.passes)
    mutated = (
        case
        for mutation in MUTATIONS
        for case in cases_of_mutation(mutation.id)
        if case.expected.exists()
    )
    each([*checked, *mutated], located)


def assert_located(document: Document, findings: Iterable[Finding]) -> None:
    """Hold every path against the object, and its place against that of what there is of it."""
    paths = [path for finding in findings for path in (finding.path, *added(finding))]
    [obj] = load_all(document.text)
    for path in paths:
        there, missing = follow(obj, path)
        # The last missing step may be an entry that a mutation would append to a list, or a key.
        # The operator of a SparkApplication adds the containers.
        is_spark = obj["kind"] == "SparkApplication"
        assert is_spark or all(step.startswith(".") for step in missing[:-1]), path
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


def read(text: str) -> list[Document]:
    return list(read_documents("f", text))


ITEMS: tuple[list[Any] | None, ...] = ([{"apiVersion": "v1", "kind": "Pod"}], [], None)


def test_any_object_with_items_is_read_as_a_list() -> None:
    listed = {"apiVersion": "v1", "kind": "ConfigMap"}
    texts = [json.dumps({**listed, "items": items}) for items in ITEMS]
    found = [[each.path for each in read_objects(read(text)[0])] for text in texts]
    assert found == [[("items", 0)], [], []]


def test_an_object_that_is_a_list_for_kubectl_only_is_an_error(subtests: pytest.Subtests) -> None:
    for items in ITEMS:
        with subtests.test(items=items):
            text = json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {}, "items": items})
            [found] = read_objects(read(text)[0])
            assert found.error is not None
            assert found.error.problem.startswith("has items and spec: kubectl reads it as a list")


def test_a_comment_with_braces_excuses_nothing_that_kubectl_creates(
    subtests: pytest.Subtests,
) -> None:
    twice = "true: 1\n'true': 2\n"
    ends = ("a: 1\n...\n}\n", "a: 1\n%YAML 1.2\n", "a: b\u2028\n")
    for text in ("a: !local b\n", "a: &a [&a 1]\n", *ends, twice):
        with subtests.test(text=text):
            [document] = read(f"# {{{{ a }}}}\napiVersion: v1\nkind: Pod\n{text}")
            document.lenient = True
            [found] = read_objects(document)
            assert (found.note, found.error) == ("", document.error)
            assert found.error is not None


def test_a_template_in_a_directory_is_a_note() -> None:
    for text in ("a: {{ b }}\n", "{{ if a }}\nb: c\n{{ end }}\n", "{{ a }}: b\n"):
        [document] = read(f"apiVersion: v1\nkind: Pod\n{text}")
        document.lenient = True
        [found] = read_objects(document)
        assert found.note.startswith("is a template")


def test_items_of_lists_of_any_kind_are_read_as_objects() -> None:
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {"apiVersion": "v1", "kind": "Pod"},
                {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "p"}}]},
                {"apiVersion": "example.com/v1", "kind": "AllowList", "spec": {}},
                {"kind": "Pod"},
                None,
            ],
        }
    )
    objects = list(read_objects(read(text)[0]))
    assert [(o.item, o.path) for o in objects] == [
        (0, ("items", 0)),
        (1, ("items", 1, "items", 0)),
        (2, ("items", 2)),
        (3, ("items", 3)),
        (4, ("items", 4)),
    ]
    assert objects[1].value == {"metadata": {"name": "p"}, "apiVersion": "v1", "kind": "Pod"}
    assert [o.error.problem if o.error else None for o in objects] == [
        None,
        None,
        None,
        "apiVersion is missing",
        "is null, not an object of the Kubernetes API",
    ]

"""Where a field stands in its file."""

from __future__ import annotations

import json

import pytest

from webhook.documents import fields as module
from webhook.documents.documents import Document, read_documents
from webhook.documents.fields import locate

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


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("kind", (3, 1)),
        ("spec", (7, 1)),
        ("spec.containers", (8, 3)),
        ("spec.containers[0]", (9, 7)),
        ("spec.containers[1].name", (13, 7)),
        ("spec.containers[0].resources.limits[nvidia.com/gpu]", (12, 18)),
        ("metadata.labels[app.kubernetes.io/name]", (6, 5)),
        ("spec.containers[1].env[0].name", (15, 14)),
        ("spec.containers[1].env[0].value", (16, 9)),
        # An alias is what its anchor is.
        ("spec.copies[app.kubernetes.io/name]", (6, 5)),
        # What is not there is where the nearest thing is that is.
        ("spec.containers[7].name", (8, 3)),
        ("spec.securityContext.runAsUser", (7, 1)),
        ("metadata.labels[...]", (5, 3)),
        ("spec.containers[0].name (a key)", (9, 7)),
    ],
)
def test_locate_returns_the_position_of_a_field_or_its_nearest_parent(
    field: str, place: tuple[int, int]
) -> None:
    position = locate(only(TEXT), (), field)
    assert position is not None
    assert position[:2] == place


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("kind", "kind: Pod"),
        ("spec", "spec"),
        ("spec.containers[0]", "name: a"),
        ("spec.containers[0].name", "name: a"),
        ("spec.containers[0].resources", "resources"),
        ("spec.containers[0].resources.limits", "limits"),
        ("spec.containers[0].resources.limits.cpu", "cpu: 1"),
        ("spec.containers[1].env[0].name", "name: X"),
        ("spec.copies", "copies"),
    ],
)
def test_the_position_of_a_field_ends_on_the_line_of_its_start(field: str, text: str) -> None:
    position = locate(only(TEXT), (), field)
    assert position is not None
    line = TEXT.splitlines()[position.line - 1]
    assert line[position.column - 1 : position.end - 1] == text


@pytest.mark.parametrize("field", ["", "status", "nothing.of[3].it"])
def test_a_field_whose_first_key_is_missing_has_no_position(field: str) -> None:
    assert locate(only(TEXT), (), field) is None


def test_fields_of_list_items_are_located() -> None:
    text = "kind: List\nitems:\n- spec: {a: 1}\n- spec:\n    a: 1\n"
    assert locate(only(text), ("items", 1), "spec.a") == (5, 5, 9)
    assert locate(only(text), ("items", 0), "spec.a") == (3, 10, 14)


def test_fields_of_json_documents_are_located() -> None:
    text = json.dumps({"kind": "Pod", "spec": {"a": [{"b": 1}]}}, indent="\t")
    lines = text.splitlines()
    position = locate(only(text), (), "spec.a[0].b")
    assert position is not None
    assert '"b": 1' in lines[position.line - 1]


def test_fields_of_the_second_json_value_are_located() -> None:
    text = '{"kind": "A"}\n{"kind": "B",\n "spec": {}}\n'
    second = list(read_documents("f", text))[1]
    assert locate(second, (), "spec") == (3, 2, 12)


def test_an_alias_of_a_redefined_anchor_leads_to_the_last_definition() -> None:
    twice = "a: &x {k: 1}\nb: &x {k: 2}\nc: *x\n"
    assert only(twice).error is None
    assert locate(only(twice), (), "a.k") == (1, 8, 12)
    assert locate(only(twice), (), "c.k") == (2, 8, 12)


def test_fields_of_invalid_documents_have_no_position() -> None:
    assert locate(only("a: [\n"), (), "a") is None


def test_fields_of_documents_above_the_size_limit_have_no_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", 10)
    assert locate(only(TEXT), (), "kind") is None

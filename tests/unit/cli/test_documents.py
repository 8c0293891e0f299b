"""Files come apart into documents, and documents into objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook.documents.documents import Document, read_documents
from webhook.documents.fields import pointer
from webhook.documents.objects import read_objects
from webhook.documents.yaml_reader import MAX_DEPTH


def read(text: str) -> list[Document]:
    return list(read_documents("f", text))


def summary(text: str) -> list[tuple[int, int, Any]]:
    return [(d.index, d.line, d.value) for d in read(text)]


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("a: 1\n", [(0, 1, {"a": 1})]),
        ("\n\n# c\na: 1", [(0, 4, {"a": 1})]),
        ("a: 1\n---\nb: 2\n", [(0, 1, {"a": 1}), (1, 3, {"b": 2})]),
        # What stands before the first --- is no document if it is only comments, or directives.
        ("# c\n---\na: 1\n", [(0, 3, {"a": 1})]),
        ("%YAML 1.1\n---\na: 1\n", [(0, 3, {"a": 1})]),
        ("---\na: 1\n---\n", [(0, 2, {"a": 1})]),
        # Every --- starts one, though, and null is counted without being an object.
        ("---\n---\na: 1\n", [(1, 3, {"a": 1})]),
        ("---\n# c\n---\nnull\n---\na: 1\n", [(2, 6, {"a": 1})]),
        ("--- # c\na: 1\n---  \nb: 2\n", [(0, 2, {"a": 1}), (1, 4, {"b": 2})]),
        ("a: 1\r\n---\r\nb: 2\r\n", [(0, 1, {"a": 1}), (1, 3, {"b": 2})]),
        ("a: |\n  ---\n  x\n", [(0, 1, {"a": "---\nx\n"})]),
        ('{"a": 1}', [(0, 1, {"a": 1})]),
        ('{"a": 1}{"b": 2}\n\n{"c":\n3}', [(0, 1, {"a": 1}), (1, 1, {"b": 2}), (2, 3, {"c": 3})]),
        ('{"a": 1}\n---\n{"b": 2}\n', [(0, 1, {"a": 1}), (1, 3, {"b": 2})]),
        ('null{"a": 1}', [(0, 1, {'null{"a"': "1}"})]),
        ('{"a": 1} null {"b": 2}', [(0, 1, {"a": 1}), (2, 1, {"b": 2})]),
        ("{a: b}\n", [(0, 1, {"a": "b"})]),
        ("[a, b]\n", [(0, 1, ["a", "b"])]),
        ('{"a":\t1}\n', [(0, 1, {"a": 1})]),
        ("\n  [1]\n", [(0, 2, [1])]),
    ],
)
def test_files_are_split_into_documents_with_index_and_line(
    text: str, documents: list[tuple[int, int, Any]]
) -> None:
    assert summary(text) == documents


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("a: 1\n---\nb: [\n---\nc: 3\n", {1: (4, "does not parse as YAML")}),
        (
            "a: 1\n---x\nb: 2\n---\nc: 3\n",
            {1: (0, "the document starts with --- x, which kubectl")},
        ),
        ('{"a": 1}\n{"b": }\n{"c": 3}\n', {1: (2, "does not parse as JSON: expecting value")}),
        ('{"a": 1}\n{"b": NaN}\n', {1: (2, "NaN is a number that JSON does not have")}),
        ('{"a": 1}\n{"b": 1e999}\n', {1: (2, "the number 1e999 is too large")}),
        ('{"a": "\\ud800"}', {0: (1, "has half of a surrogate pair")}),
        (f'{{"a": {"[" * MAX_DEPTH}{"]" * MAX_DEPTH}}}', {0: (1, "nested more than 100 levels")}),
        (f"{'[' * 100_000}", {0: (1, "nested more than 100 levels deep")}),
        (f"{'[' * 100_000}{']' * 100_000}", {0: (1, "nested more than 100 levels deep")}),
    ],
)
def test_an_invalid_document_has_an_error_with_its_line(
    text: str, errors: dict[int, tuple[int, str]]
) -> None:
    documents = read(text)
    assert {d.index for d in documents if d.error} == set(errors)
    for document in documents:
        if document.error:
            line, problem = errors[document.index]
            assert (document.error.line or document.line) == (line or document.line)
            assert document.error.problem.startswith(problem)
            assert document.error.cure


def test_json_integers_beyond_64_bits_become_floats() -> None:
    (document,) = read('{"a": [18446744073709551615, -9223372036854775808, 18446744073709551616]}')
    assert document.value["a"] == [2**64 - 1, -(2**63), 2.0**64]
    assert [type(number) for number in document.value["a"]] == [int, int, float]
    (long,) = read(f'{{"a": {"9" * 300}}}')
    assert isinstance(long.value["a"], float)


def test_surrogate_pairs_in_json_are_one_character() -> None:
    assert read('{"a": "\\ud83d\\ude00"}')[0].value == {"a": "\U0001f600"}


def test_json_at_the_maximum_nesting_depth_is_read() -> None:
    levels = MAX_DEPTH - 1
    assert read(f'{{"a": {"[" * levels}{"]" * levels}}}')[0].error is None


@pytest.mark.parametrize("end", ["\r", "\x85", "\u2028", "\u2029", "\r\n"])
def test_a_comment_ends_at_each_yaml_line_break(end: str) -> None:
    pod = f"apiVersion: v1{end}kind: Pod"
    [document] = read(f"# said{end}{pod}")
    assert (document.error, document.value) == (None, {"apiVersion": "v1", "kind": "Pod"})
    # What kubectl would drop with the line, or take for an object, is never passed over.
    *_, document = read(f"a: b\n--- # said{end}{pod}")
    assert document.value or document.error


@pytest.mark.parametrize("items", [[{"apiVersion": "v1", "kind": "Pod"}], [], None])
def test_any_object_with_items_is_read_as_a_list(items: list[Any] | None) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "items": items})
    assert [pointer(o.path) for o in read_objects(read(text)[0])] == ["/items/0"][
        : len(items or [])
    ]


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
    assert [(o.item, pointer(o.path)) for o in objects] == [
        (0, "/items/0"),
        (1, "/items/1/items/0"),
        (2, "/items/2"),
        (3, "/items/3"),
        (4, "/items/4"),
    ]
    assert objects[1].value == {"metadata": {"name": "p"}, "apiVersion": "v1", "kind": "Pod"}
    assert objects[1].added == ("apiVersion", "kind")
    assert [o.error.problem if o.error else None for o in objects] == [
        None,
        None,
        None,
        "apiVersion is missing",
        "is null, not an object of the Kubernetes API",
    ]


@pytest.mark.parametrize("items", ["", "items: null", "items: []"])
def test_a_list_may_be_empty(items: str) -> None:
    (document,) = read(f"apiVersion: v1\nkind: List\n{items}\n")
    assert list(read_objects(document)) == []


def test_json_pointers_are_escaped_as_specified_by_rfc_6901() -> None:
    assert pointer(()) == ""
    assert pointer(("a/b", "c~d", 0)) == "/a~1b/c~0d/0"


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ('{"a": 1 "b": 2}', "Look for a missing comma, or a bracket that is not closed"),
        ('{"a" 1}', "Look for a missing colon"),
        ('{"a": 1,, "b": 2}', "Put the key in double quotes, or look for a comma too many"),
        ('{"a": [1,, 2]}', "Put text in double quotes, or look for a comma too many"),
        ('{"a": "b', "Look for a quote that is not closed"),
        ('{"a": "b\nc"', r"Write it as an escape: \n for a line break, \t for a tab"),
        (r'{"a": "C:\dir"}', r"Write a backslash as \\"),
        ('{"a": {{ .Values.a }}}', "It looks like a Helm template"),
    ],
)
def test_a_json_syntax_error_includes_remediation(text: str, cure: str) -> None:
    (document,) = read(text)
    assert document.error is not None
    assert document.error.problem.startswith("does not parse as JSON: ")
    assert document.error.cure.startswith(cure)

"""Files come apart into documents."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from policies.kubernetes.objects import MAX_DEPTH
from webhook.documents import files
from webhook.documents.document import Document
from webhook.documents.files import read_documents


def read(text: str) -> list[Document]:
    return list(read_documents("f", text))


def summary(text: str) -> list[tuple[int, int, Any]]:
    return [(d.index, d.line, d.value) for d in read(text)]


def test_files_are_split_into_documents_with_index_and_line() -> None:
    documents: dict[str, list[tuple[int, int, Any]]] = {
        "a: 1\n": [(0, 1, {"a": 1})],
        "\n\n# c\na: 1": [(0, 4, {"a": 1})],
        "a: 1\n---\nb: 2\n": [(0, 1, {"a": 1}), (1, 3, {"b": 2})],
        # What stands before the first --- is no document if it is only comments, or directives.
        "# c\n---\na: 1\n": [(0, 3, {"a": 1})],
        "%YAML 1.1\n---\na: 1\n": [(0, 3, {"a": 1})],
        "---\na: 1\n---\n": [(0, 2, {"a": 1})],
        # Every --- starts one, though, and null is counted without being an object.
        "---\n---\na: 1\n": [(1, 3, {"a": 1})],
        "---\n# c\n---\nnull\n---\na: 1\n": [(2, 6, {"a": 1})],
        "--- # c\na: 1\n---  \nb: 2\n": [(0, 2, {"a": 1}), (1, 4, {"b": 2})],
        "a: 1\r\n---\r\nb: 2\r\n": [(0, 1, {"a": 1}), (1, 3, {"b": 2})],
        "a: |\n  ---\n  x\n": [(0, 1, {"a": "---\nx\n"})],
        '{"a": 1}': [(0, 1, {"a": 1})],
        '{"a": 1}{"b": 2}\n\n{"c":\n3}': [(0, 1, {"a": 1}), (1, 1, {"b": 2}), (2, 3, {"c": 3})],
        '{"a": 1}\n---\n{"b": 2}\n': [(0, 1, {"a": 1}), (1, 3, {"b": 2})],
        'null{"a": 1}': [(0, 1, {'null{"a"': "1}"})],
        '{"a": 1} null {"b": 2}': [(0, 1, {"a": 1}), (2, 1, {"b": 2})],
        '{"a": 1}\n---\nb: 2\n': [(0, 1, {"a": 1}), (1, 3, {"b": 2})],
        "{a: b}\n": [(0, 1, {"a": "b"})],
        "[a, b]\n": [(0, 1, ["a", "b"])],
        '{"a":\t1}\n': [(0, 1, {"a": 1})],
        "\n  [1]\n": [(0, 2, [1])],
    }
    assert {text: summary(text) for text in documents} == documents


def test_an_invalid_document_has_an_error_with_its_line(subtests: pytest.Subtests) -> None:
    nested = "nested more than 100 levels"
    for text, index, line, problem in (
        ("a: 1\n---\nb: [\n---\nc: 3\n", 1, 4, "does not parse as YAML"),
        ("a: 1\n---x\nb: 2\n---\nc: 3\n", 1, 2, "the document starts with --- x, which kubectl"),
        ('{"a": 1}\n{"b": }\n{"c": 3}\n', 1, 2, "does not parse as JSON: expecting value"),
        ('{"a": 1}\n{"b": NaN}\n', 1, 2, "NaN is a number that JSON does not have"),
        ('{"a": 1}\n{"b": 1e999}\n', 1, 2, "the number 1e999 is too large"),
        ('{"a": "\\ud800"}', 0, 1, "has half of a surrogate pair"),
        (f'{{"a": {"[" * MAX_DEPTH}{"]" * MAX_DEPTH}}}', 0, 1, nested),
        (f"{'[' * 100_000}", 0, 1, nested),
        (f"{'[' * 100_000}{']' * 100_000}", 0, 1, nested),
    ):
        with subtests.test(text=text):
            [document] = [each for each in read(text) if each.error]
            assert document.error is not None
            assert (document.index, document.error.line or document.line) == (index, line)
            assert document.error.problem.startswith(problem)
            assert document.error.cure


def test_a_comment_ends_at_each_line_break(subtests: pytest.Subtests) -> None:
    for end in ("\r", "\r\n"):
        with subtests.test(end=end):
            pod = f"apiVersion: v1{end}kind: Pod"
            [document] = read(f"# said{end}{pod}")
            assert (document.error, document.value) == (None, {"apiVersion": "v1", "kind": "Pod"})
            # What kubectl would drop with the line, or take for an object, is never passed over.
            *_, document = read(f"a: b\n--- # said{end}{pod}")
            assert document.value or document.error


def test_a_character_that_ends_a_line_for_some_readers_only_is_an_error(
    subtests: pytest.Subtests,
) -> None:
    texts = {
        "# said{}apiVersion: v1\nkind: Pod\n": 1,
        "a: b\n--- # said{}apiVersion: v1\nkind: Pod\n": 2,
        "a: b\n---\nc: |\n  d{}": 4,
        '{{"a": "b"}}\n---\n{{"a": "b{}c"}}\n': 3,
    }
    for (text, line), end in product(texts.items(), ("\x85", "\u2028", "\u2029")):
        code = f"{ord(end):04x}"
        with subtests.test(text=text, code=code):
            *_, document = read(text.format(end))
            assert document.error is not None
            assert document.error.line == line
            problem = f"has the character U+{code.upper()}, which e"
            assert document.error.problem.startswith(problem)
            assert document.error.cure.endswith(f'in double quotes: "\\u{code}"')


def test_a_file_with_very_many_documents_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_DOCUMENTS", 3)
    for text in ("{}\n" * 10, "{}{}\n---\n" * 10, "---\na: 1\n" * 10):
        *documents, last = read(text)
        assert [document.error for document in documents] == [None] * 3
        assert last.error is not None
        assert last.error.problem == "the file holds more than 3 documents"
    assert len(read("{}\n" * 3)) == 3

"""JSON is read as the API server reads it."""

from __future__ import annotations

import pytest

from webhook.documents.document import Document
from webhook.documents.files import read_documents


def read(text: str) -> list[Document]:
    return list(read_documents("f", text))


def test_json_integers_beyond_64_bits_become_floats() -> None:
    (document,) = read('{"a": [18446744073709551615, -9223372036854775808, 18446744073709551616]}')
    assert document.value["a"] == [2**64 - 1, -(2**63), 2.0**64]
    assert [type(number) for number in document.value["a"]] == [int, int, float]
    (long,) = read(f'{{"a": {"9" * 300}}}')
    assert isinstance(long.value["a"], float)


def test_surrogate_pairs_in_json_are_one_character() -> None:
    assert read('{"a": "\\ud83d\\ude00"}')[0].value == {"a": "\U0001f600"}


def test_a_json_syntax_error_includes_remediation(subtests: pytest.Subtests) -> None:
    cures = {
        '{"a": 1 "b": 2}': "Look for a missing comma, or a bracket that is not closed",
        '{"a" 1}': "Look for a missing colon",
        '{"a": 1,, "b": 2}': "Put the key in double quotes, or look for a comma too many",
        '{"a": [1,, 2]}': "Put text in double quotes, or look for a comma too many",
        '{"a": "b': "Look for a quote that is not closed",
        '{"a": "b\nc"': r"Write it as an escape: \n for a line break, \t for a tab",
        r'{"a": "C:\dir"}': r"Write a backslash as \\",
        '{"a": {{ .Values.a }}}': "It looks like a Helm template",
    }
    for text, cure in cures.items():
        with subtests.test(text=text):
            (document,) = read(text)
            assert document.error is not None
            assert document.error.problem.startswith("does not parse as JSON: ")
            assert document.error.cure.startswith(cure)

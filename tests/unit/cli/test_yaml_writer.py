"""What is written is read back as it was, by every reader."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.documents.files import read_documents
from webhook.documents.yaml_reader import read_yaml
from webhook.tools.cli.yaml_writer import to_yaml

# Characters and words that some reader of YAML takes for more than text.
CHARACTERS = (
    "yYnN~.-+0123456789:eExXoOb_ #'\"\\{}[],&*!|>%@`=<?\n\t\r\x00\x07\x7f\x85\xa0\u2028\ufeff"
    "é\U0001f600atruefalsno/"
)
WORDS = (
    *("---", "...", "--- a", "a\n---\nb", "<<", "=", "null", "~", "yes", "NO", "on", "y", "true"),
    *("1e3", "08", "0o17", "0x1F", "1_000", "12:30:00", "2026-01-31", "2026-01-31T10:00:00Z"),
    *(".inf", "-.nan", "1.", ".5", "+1", "a: b", "a #b", "a:", "- a", "? a", "#a", " a", "a "),
    *("a\n", "a\n\n", "a\nb", "\na", " a\nb", "a\n b\n\n", "\ta\nb", "a \nb", "\n", "k" * 600),
)
TEXT = st.one_of(st.text(CHARACTERS, max_size=8), st.sampled_from(WORDS), st.text(max_size=8))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON, in the same order."""
    return json.dumps(one) == json.dumps(other)


@given(VALUES)
@example({"k" * 600: {"a": 1}, "b": [{"k" * 600: ["c"]}]})
def test_written_yaml_reads_back_unchanged(value: Any) -> None:
    text = to_yaml(value)
    parsed = read_yaml(text)
    assert alike(parsed.value if parsed else None, value)
    assert alike(yaml.safe_load(text), value)


@given(st.lists(st.dictionaries(TEXT, VALUES, min_size=1, max_size=3), min_size=1, max_size=3))
def test_consecutive_documents_are_read_back_as_separate_documents(values: list[Any]) -> None:
    text = "---\n".join(map(to_yaml, values))
    assert alike([document.value for document in read_documents("f", text)], values)

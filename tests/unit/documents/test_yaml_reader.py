"""YAML means to us what it means to Kubernetes.

The expected values are what ``sigs.k8s.io/yaml`` v1.6.0 (``YAMLToJSON``) returned for the same
texts.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from policies.kubernetes.objects import MAX_DEPTH
from webhook.documents import yaml_reader
from webhook.documents.document import DocumentError
from webhook.documents.yaml_reader import read_yaml


@pytest.fixture(params=["libyaml", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers of PyYAML: the one in C, and the one for machines without libyaml."""
    if request.param == "Python":
        monkeypatch.setattr(yaml_reader, "Parser", yaml.Loader)
    return str(request.param)


def read(text: str) -> Any:
    parsed = read_yaml(text)
    return parsed.value if parsed else None


KEYS = {
    "yes": "true",
    "off": "false",
    "1": "1",
    "017": "15",
    "1.5": "1.5",
    "1.0": "1",
    "1e6": "1e+06",
    "1e5": "100000",
    "0.0001": "0.0001",
    "0.00001": "1e-05",
    "16777217.0": "1.6777216e+07",
    "1e39": ".inf",
    "-0.0": "-0",
    "12:30": "12:30",
}


def test_keys_become_strings() -> None:
    assert {text: read(f"{text}: x\n") for text in KEYS} == {
        text: {key: "x"} for text, key in KEYS.items()
    }


DOCUMENTS: dict[str, Any] = {
    "a: 'x'\nb: \"y\\n\"\nc: |\n  d\n   e\nf: >-\n  g\n  h\n": {
        "a": "x",
        "b": "y\n",
        "c": "d\n e\n",
        "f": "g h",
    },
    "a: {b: c, d: [e, 1]}\n": {"a": {"b": "c", "d": ["e", 1]}},
    "- 1\n-\n  - a\n": [1, ["a"]],
    "a: '1'\nb: \"yes\"\nc: ''\nd:\n": {"a": "1", "b": "yes", "c": "", "d": None},
    "a: !!str 1\nb: !!int '3'\nc: !!float 3\nd: !!bool yes\ne: !!null ''\nf: !!map {}\n": {
        "a": "1",
        "b": 3,
        "c": 3.0,
        "d": True,
        "e": None,
        "f": {},
    },
    "a: !!timestamp 2001-01-01\n": {"a": "2001-01-01"},
    "a: ! 12\nb: ! '12'\n! yes: c\n": {"a": "12", "b": "12", "yes": "c"},
    "a: &x {b: 1}\nc: *x\nd: [*x]\n": {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}]},
    "a: &x 1\nb: &x 2\nc: *x\n": {"a": 1, "b": 2, "c": 2},
    "&k a: 1\nb: *k\n": {"a": 1, "b": "a"},
    # A merge gives way to what stands below it, and overrides what stands above.
    "a: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n": {"a": {"b": 1}, "c": {"b": 2}},
    "a: &x {b: 1}\nc:\n  b: 2\n  <<: *x\n": {"a": {"b": 1}, "c": {"b": 1}},
    "<<: [{a: 1}, {a: 2, b: 3}]\n": {"a": 1, "b": 3},
    "!!merge <<: {a: 1}\n": {"a": 1},
    "! <<: {a: 1}\n&k <<: {b: 2}\n": {"a": 1, "b": 2},
    "'<<': {a: 1}\n": {"<<": {"a": 1}},
    "!!str <<: {a: 1}\n": {"<<": {"a": 1}},
    # The tag alone merges nothing; and an anchor at << is one.
    "!!merge '<<': {a: 1}\n": {"a": 1},
    "a: &a 1\n&a <<: {b: 2}\nc: *a\n": {"a": 1, "b": 2, "c": "<<"},
    "a: b #c\nd: e#f\n": {"a": "b", "d": "e#f"},
    "# only a comment\n": None,
    "": None,
    "~\n": None,
    "a: 1\n...\n": {"a": 1},
    "a: \U0001f600\n": {"a": "\U0001f600"},
}


@pytest.mark.usefixtures("parser")
def test_a_document_has_the_value_that_kubernetes_reads() -> None:
    assert {text: read(text) for text in DOCUMENTS} == DOCUMENTS


def nested(levels: int, inside: str = "") -> str:
    return "[" * levels + inside + "]" * levels


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)

REFUSED = [
    ("a: !Ref b\n", "1:4", "the tag !Ref has no meaning in Kubernetes"),
    ("a: !!binary aGk=\n", "1:4", "the tag !!binary has no meaning in Kubernetes"),
    ("a: !!set {b}\n", "1:4", "the tag !!set has no meaning in Kubernetes"),
    ("a: !!int x\n", "1:4", "x is not a valid int, which its tag requires"),
    ("a: !!null x\n", "1:4", "x is not a valid null, which its tag requires"),
    ("a: .inf\n", "1:4", ".inf is a number that JSON does not have"),
    ("a: [1, -.inf]\n", "1:8", "-.inf is a number that JSON does not have"),
    ("~: 1\n", "1:1", "a mapping's key must be a string"),
    ("? [a]\n: 1\n", "1:3", "a mapping's key must be a string"),
    ("9999999999999999999: 1\n", "1:1", "a mapping's key must be a string"),
    ("a: *b\n", "1:4", "the anchor b is not defined above"),
    ("a: &b [*b]\n", "1:8", "the anchor b contains itself"),
    ("a: &a [&a 1]\n", "1:8", "the anchor a is defined again within its own value"),
    ("a: &a {b: &a {c: 1}}\n", "1:11", "the anchor a is defined again within its own value"),
    ("!!merge spec: {a: 1}\n", "1:1", "the tag !!merge has no meaning in Kubernetes"),
    ("yes: 1\n'true': 2\n", "2:1", "the key true is already set above in another notation"),
    ("1: 1\n1.0: 2\n", "2:1", "the key 1 is already set above in another notation"),
    (
        "a: &a {1: x}\nb: {'1': y, <<: *a}\n",
        "2:17",
        "the key 1 is already set above in another notation",
    ),
    (
        "a: &a {1: x}\nb: {<<: *a, '1': y}\n",
        "2:13",
        "the key 1 is already set above in another notation",
    ),
    ("<<: 1\n", "1:5", "<< merges mappings, but this is not a mapping"),
    ("<<: [{a: 1}, 2]\n", "1:5", "<< merges mappings, but this is not a mapping"),
    (BOMB, "6:18", "aliases that expand to more than 400,000 values"),
    (f"a: {nested(MAX_DEPTH)}", f"1:{MAX_DEPTH + 3}", "nested more than 100 levels deep"),
    (
        f"a: &a {nested(60, '1')}\nb: &b {nested(30, '*a')}\nc: {nested(20, '*b')}\n",
        "3:24",
        "nested more than 100 levels deep",
    ),
    ("a: 1\n--- \nb: 2\n", "2:1", "a second document starts here"),
]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "value", "place", "key"),
    [
        ("a: 1\nb: 2\na: 3\n", {"a": 3, "b": 2}, "3:1", "a"),
        ("yes: 1\ntrue: 2\n", {"true": 2}, "2:1", "true"),
        ("a:\n  b: {c: 1}\n  b: {d: 2}\n", {"a": {"b": {"d": 2}}}, "3:3", "b"),
        ("items: [1, 2]\nkind: List\nitems: [3]\n", {"items": [3], "kind": "List"}, "3:1", "items"),
    ],
)
def test_a_duplicate_key_is_reported_and_the_second_value_is_used(
    text: str, value: Any, place: str, key: str
) -> None:
    parsed = read_yaml(text)
    assert parsed is not None
    assert parsed.value == value
    assert parsed.duplicate is not None
    assert f"{parsed.duplicate.line}:{parsed.duplicate.column}" == place
    assert parsed.duplicate.problem == f"the key {key} is already set above in the same mapping"


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("text", "place", "problem"), REFUSED)
def test_yaml_without_a_json_equivalent_is_rejected(text: str, place: str, problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        read(text)
    assert raised.value.problem == problem
    assert raised.value.cure
    assert f"{raised.value.line}:{raised.value.column}" == place


def test_aliases_may_nest_up_to_the_maximum_depth() -> None:
    text = f"a: &a {nested(60, '1')}\nb: {nested(39, '*a')}\n"
    value = read(text)["b"]
    depth = 0
    while isinstance(value, list):
        depth, value = depth + 1, value[0]
    assert depth == MAX_DEPTH - 1


SYNTAX = [
    (
        "a: b: c\n",
        "1:5",
        "mapping values are not allowed",
        'Put the value in quotes if it holds ": "',
    ),
    (
        "a:\n\t- b\n",
        "2:1",
        "found character",
        "Indent with spaces: YAML does not accept tabs there",
    ),
    ("a: b\n\tc: d\n", "2:1", "found a tab", "Indent with spaces: YAML does not accept tabs there"),
    ("a: @b\n", "1:4", "found character", "Put the value in quotes: it cannot start with @"),
    ("a: 'b\n", "2:1", "found unexpected end of stream", "Look for a quote that is not closed"),
    ("a: [b\nc: d\n", "2:2", "did not find expected ',' or ']'", "Look for a missing comma"),
    ("a: 1\n b: 2\n", "2:3", "mapping values are not allowed", "align the line"),
    ("a:\n  - b\n c: d\n", "3:2", "did not find expected", "Align the line"),
    ("a\n: b\n", "2:1", "did not find expected <document start>", "look for a stray line"),
    ("{{ a }}: b\nc: {{ d }}\n", "", "", "It looks like a Helm template"),
    ("a: \x07\n", "1:4", "has the character U+0007, which YAML does not accept", "Remove it"),
    (
        "a: b\n\nc: \x00\n",
        "3:4",
        "has the character U+0000, which YAML does not accept",
        "Remove it",
    ),
]


@pytest.mark.parametrize(("text", "place", "problem", "cure"), SYNTAX)
def test_syntax_errors_have_a_position_and_remediation(
    text: str, place: str, problem: str, cure: str, parser: str
) -> None:
    with pytest.raises(DocumentError) as raised:
        read(text)
    error = raised.value
    assert error.line > 0
    if parser == "libyaml":
        assert problem in error.problem
        assert place in ("", f"{error.line}:{error.column}")
        assert cure in error.cure


def test_parsed_yaml_has_the_line_of_the_object_and_of_each_item() -> None:
    parsed = read_yaml("# a\n\nkind: List\nitems:\n- a: 1\n-\n  b: 2\n- &x {c: 3}\n- *x\n")
    assert parsed is not None
    assert (parsed.line, parsed.item_lines) == (3, [5, 7, 8, 9])


def test_pyyaml_is_installed_with_libyaml() -> None:
    """The wheels have it; the other tests would hold without, ten times as slowly."""
    assert yaml.__with_libyaml__

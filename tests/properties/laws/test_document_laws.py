"""What kubectl would create of a file is read of it, or the file is at fault: never passed over."""

from __future__ import annotations

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from laws.profile import law
from oracle.driver import Oracle
from webhook.documents.files import read_documents
from webhook.documents.objects import read_objects

pytestmark = pytest.mark.timeout(3600)

_POD = ("apiVersion: v1", "kind: Pod", "metadata: {name: p}")
_FLOW = "{apiVersion: v1, kind: Pod, metadata: {name: f}}"
_JSON = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"}}'
_LIST = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "l"}, "items": [%s]}'

ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\x85", "\u2028", "\u2029"])
pieces = st.one_of(
    st.just(_POD),
    st.sampled_from([_FLOW, _JSON, _LIST % _JSON, _LIST % "", _LIST % f"{_JSON}, {_JSON}"]),
    st.sampled_from(["---", "--- # said", "--- ", "---\t", "...", "--- {}", "----", " ---"]),
    st.sampled_from(["", "# said", "  # said", "%YAML 1.1", "#", " ", "\t", "\ufeff", "null", "~"]),
    st.sampled_from(["a: b", "- a", "items: []", "kind: Pod", "apiVersion: v1", "[]", "{}"]),
    st.sampled_from(["%TAG ! tag:yaml.org,2002:", "items: null", "items:", "Items: []", "KIND: a"]),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a file of objects, comments, separators and line breaks of every sort."""
    text = ""
    for piece in draw(st.lists(pieces, min_size=1, max_size=7)):
        lines = piece if isinstance(piece, tuple) else (piece,)
        text += "".join(line + draw(ends) for line in lines)
    return text


# Values that readers of YAML understand differently: by their form, quotes, escapes and breaks.
_PLAIN = """
yes No on OFF y n ~ null Null true TRUE << = 0 -0 +1 1. .5 -.5 +.inf -.Inf .nan 1e3 1E400 1e 0x - é
017 08 0o17 0x1F 0X1f 0b11 -0b1 0b_1 1_000 _1 1__0 1_e3 1:30 12:30:45 2001-01-01 spec a#b a: b:c
2001-12-14t21:59:43.10-05:00 9223372036854775807 9223372036854775808 18446744073709551616
-9223372036854775808 -9223372036854775809 -1_8446744073709551615
"""
_QUOTED = r"""
'' "" 'a''b' "a\tb" "\x41\u0042\U00000043" "\/" "\e" "\_\N" "\L\P" "\0" "\ud83d\ude00"
'<<' "true" '1'
"""
_TAGS = """
!!str !!int !!float !!bool !!null !!map !!seq !!merge !!binary !!timestamp !!set !!omap
! !local !<tag:yaml.org,2002:str> !<!str> !!python/none
"""
_KEYS = "spec hostNetwork nodeName << true yes 1 0x1 1.0 01 +1 .inf 1e0"
_FOLDED = ['"sp\\\n  ec"', "'a\n\n  b'", '"a  \t\n  b"', '"a\\  \n  b"', "a\n  b", '"a\ufeffb"']
_BREAKS = ["'a\u2028b'", '"a\x85b"', '"a\\\u2028b"', "a\u2029b", "a\u00a0b", "a # b\rc"]


def _words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


scalars = st.one_of(_words(_PLAIN), _words(_QUOTED), st.sampled_from(_FOLDED + _BREAKS))
keys = st.one_of(
    _words(_KEYS),
    _words(_KEYS).map('"{}"'.format),
    st.sampled_from(["'spec'", '"sp\\\n  ec"', "? spec\n ", "? [a]\n ", "? {a: b}\n "]),
)
names = st.sampled_from(["a", "b"])


def _properties(node: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return nodes with a tag, an anchor, both or, mostly, none."""
    return st.one_of(
        node,
        node,
        st.builds("{} {}".format, _words(_TAGS), node),
        st.builds("&{} {}".format, names, node),
        st.builds("&{} {} {}".format, names, _words(_TAGS), node),
        names.map("*{} ".format),
    )


def _collections(nodes: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    entries = st.builds("{}: {}".format, _properties(keys), nodes)
    return _properties(
        st.one_of(
            st.lists(nodes, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
            st.lists(entries, max_size=4).map(lambda items: f"{{{', '.join(items)}}}"),
        )
    )


values = st.recursive(_properties(scalars), _collections, max_leaves=8)
entries = st.one_of(
    st.builds("{}: {}".format, _properties(keys), values),
    st.builds("{}:\n  {}: {}".format, _properties(keys), _properties(keys), values),
    st.builds("{}: {}\n  a\n   b\n".format, keys, st.sampled_from(["|", ">", "|+", ">-", "|2"])),
    st.sampled_from(["items: []", "items: null", "#", "\t# said", "...", "%YAML 1.2", "\ufeff"]),
)


@st.composite
def odd_texts(draw: st.DrawFn) -> str:
    """Draw a Pod with fields that readers of YAML may understand differently."""
    lines = [*_POD, *draw(st.lists(entries, min_size=1, max_size=5))]
    if draw(st.booleans()):
        lines = draw(st.permutations(lines))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    return draw(st.sampled_from(["", "", "", "\ufeff", "---\n", "--- \r"])) + end.join(lines) + end


def exact(value: object) -> object:
    """Return a value that is equal only to values of the same type; a whole float is an integer."""
    if isinstance(value, dict):
        return {key: exact(part) for key, part in value.items()}
    if isinstance(value, list):
        return [exact(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return type(value).__name__, value


@law
@given(st.one_of(texts(), odd_texts(), odd_texts()), st.booleans())
@example("# said\rapiVersion: v1\rkind: Pod\rmetadata: {name: p}\n", False)
@example(f"--- # said\r{_FLOW}\n", False)
@example(_LIST % _JSON, False)
@example("\n".join([*_POD, "!!merge spec: {hostNetwork: true}\n"]), False)
@example("\n".join([*_POD, "a: &a [1, &a 2]\nspec: *a\n"]), False)
@example("\n".join([*_POD, "a: &a 1\n? &a <<\n: {}\nspec: *a\n"]), False)
@example("\n".join([*_POD, "a: &a {1: x}\nspec: {'1': y, <<: *a}\n"]), False)
@example("\n".join([*_POD, "%YAML 1.2\n"]), True)
@example("\n".join([*_POD, "a: !b c\n"]), True)
@example(f'{_FLOW}\n---\n{{"apiVersion": "v1", "kind": "Pod", "a": "b\u2028c"}}\n', False)
def test_every_object_that_kubectl_would_create_is_read_or_an_error(
    oracle: Oracle, text: str, in_directory: bool
) -> None:
    if in_directory:
        text += "\n# {{ or what looks like a template }}\n"
    expected = oracle.documents(text)
    documents = list(read_documents("a.yaml", text))
    for document in documents:
        document.lenient = in_directory
    found = [manifest for document in documents for manifest in read_objects(document)]
    faults = [manifest for manifest in found if manifest.error is not None]
    objects = [
        exact(manifest.value)
        for manifest in found
        if manifest.error is None and manifest.value is not None
    ]
    event(f"at fault for kubectl: {bool(expected.fault)}, for gpufence: {bool(faults)}")
    if not faults:
        # There may be more: of two objects in JSON below a separator, kubectl drops the second.
        rest = iter(objects)
        wanted = [obj for obj in expected.objects if obj.get("apiVersion")]
        assert all(exact(obj) in rest for obj in wanted)

"""What kubectl would create of a file is read of it, or the file is at fault: never passed over."""

from __future__ import annotations

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from laws.profile import law
from oracle.driver import Oracle
from webhook.tools.documents.files import read_documents
from webhook.tools.documents.objects import read_objects

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
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a file of objects, comments, separators and line breaks of every sort."""
    text = ""
    for piece in draw(st.lists(pieces, min_size=1, max_size=7)):
        lines = piece if isinstance(piece, tuple) else (piece,)
        text += "".join(line + draw(ends) for line in lines)
    return text


@law
@given(texts())
@example("# said\rapiVersion: v1\rkind: Pod\rmetadata: {name: p}\n")
@example(f"--- # said\r{_FLOW}\n")
@example(_LIST % _JSON)
def test_every_object_that_kubectl_would_create_is_read_or_an_error(
    oracle: Oracle, text: str
) -> None:
    expected = oracle.documents(text)
    found = [m for document in read_documents("a.yaml", text) for m in read_objects(document)]
    faults = [manifest for manifest in found if manifest.error is not None]
    objects = [
        f"{manifest.value['kind']}/{(manifest.value.get('metadata') or {}).get('name', '')}"
        for manifest in found
        if manifest.error is None and manifest.value is not None
    ]
    event(f"at fault for kubectl: {bool(expected.fault)}, for gpufence: {bool(faults)}")
    if not faults:
        # There may be more: of two objects in JSON below a separator, kubectl drops the second.
        rest = iter(objects)
        assert all(wanted in rest for wanted in expected.objects)

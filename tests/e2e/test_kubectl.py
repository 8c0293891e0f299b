"""What the real kubectl creates of a file is read of it, or the file is at fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster import ControlPlane
from controlplane.objects import definition
from laws.profile import live_law as law
from laws.test_document_laws import exact, odd_texts, texts
from webhook.documents.files import decode, read_documents
from webhook.documents.objects import read_objects

JSON = dict[str, Any]

# Objects that the API server stores as they are: of a Pod, it drops what it does not know.
KIND = definition("odd.example", "v1", "Odd", scope="Cluster")
FILES = 8
"""Files of one call of kubectl."""


@pytest.fixture(scope="module", autouse=True)
def _defined(control_plane: ControlPlane) -> Iterator[None]:
    with control_plane.defined(KIND):
        yield


@pytest.mark.slow("starts kubectl for batches of files")
def test_law_what_kubectl_creates_is_read_or_an_error(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    tally: Counter[str] = Counter()

    @law
    @given(st.lists(st.one_of(texts(), odd_texts(), odd_texts()), min_size=FILES, max_size=FILES))
    def sent(files: list[str]) -> None:
        for number, text in enumerate(files):
            (tmp_path / f"{number}.yaml").write_bytes(odd(text, number).encode())
        created = create(control_plane, tmp_path)
        for number in range(FILES):
            wanted = [obj for obj in created if obj["metadata"]["name"][1:] == str(number)]
            found, faults = read((tmp_path / f"{number}.yaml").read_bytes())
            tally["files"] += 1
            tally["created"] += len(wanted)
            tally["at fault, and created"] += bool(faults and wanted)
            if not faults:
                rest = iter(found)
                assert all(stored(obj) in rest for obj in wanted), (wanted, found)

    sent()
    print(f"\n{dict(tally)}")
    assert tally["created"] > tally["files"] / 5
    assert tally["at fault, and created"] < tally["created"] / 2


def odd(text: str, number: int) -> str:
    """Return the text with objects of the kind in place of Pods, and the number in their names."""
    for old, new in (
        ("apiVersion: v1", "apiVersion: odd.example/v1"),
        ('"apiVersion": "v1"', '"apiVersion": "odd.example/v1"'),
        ("kind: Pod", "kind: Odd"),
        ('"kind": "Pod"', '"kind": "Odd"'),
        ('"kind": "ConfigMap"', '"kind": "Odd"'),
    ):
        text = text.replace(old, new)
    for name in "pfjl":
        text = text.replace(f"name: {name}", f"name: {name}{number}")
        text = text.replace(f'"name": "{name}"', f'"name": "{name}{number}"')
    return text


def create(cluster: ControlPlane, directory: Path) -> list[JSON]:
    """Return what kubectl creates of the files. It goes on after a file at fault."""
    options = ("--dry-run=server", "--validate=false", "-o", "json", "-f", str(directory))
    rest = cluster.kubectl("create", *options, check=False).stdout.strip()
    found: list[JSON] = []
    while rest:
        obj, end = json.JSONDecoder().raw_decode(rest)
        found += obj["items"] if obj["kind"] == "List" else [obj]
        rest = rest[end:].strip()
    return found


def read(content: bytes) -> tuple[list[object], bool]:
    """Return the objects that gpufence reads of a file, and whether one is at fault."""
    documents = read_documents("a.yaml", decode(content))
    manifests = [manifest for document in documents for manifest in read_objects(document)]
    objects = [stored(each.value) for each in manifests if each.value and each.error is None]
    return objects, any(each.error for each in manifests)


def stored(obj: JSON) -> object:
    """Return the object without what the API server adds to its metadata."""
    metadata = {"name": obj["metadata"]["name"]} if isinstance(obj.get("metadata"), dict) else {}
    return exact({**obj, "metadata": metadata})

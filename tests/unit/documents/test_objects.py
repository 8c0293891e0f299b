"""Documents come apart into objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook.documents.documents import Document, read_documents
from webhook.documents.fields import pointer
from webhook.documents.objects import read_objects


def read(text: str) -> list[Document]:
    return list(read_documents("f", text))


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

"""The objects of a document: itself, or the items of a List."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from policies.kubernetes.objects import JSONObject
from webhook.documents.documents import Document
from webhook.documents.errors import ManifestError, looks_like_template

Path = tuple[str | int, ...]

# kustomize's own files, which may omit their apiVersion.
_KUSTOMIZE_KINDS = frozenset({"Kustomization", "Component"})
_TEMPLATE_NOTE = "is a template, with placeholders such as {{ }}"
_PATCH_NOTE = "has no apiVersion, as a patch may"
_CURES = {
    "apiVersion": "Write the one that kubectl api-resources shows for its kind",
    "kind": "Write one that kubectl api-resources shows",
}
_TYPES = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    type(None): "null",
}


class Manifest(msgspec.Struct, eq=False):
    """One object and where it comes from, or what is wrong with it.

    ``item`` is its number among the objects of a List, from 0, and ``None`` outside of one;
    ``path`` leads to it from the root of the document. ``value`` has apiVersion and kind also where
    a typed list (a PodList) leaves them out of its items: ``added`` names what was so added. It is
    ``None`` for a document that is not an object of the API; ``note`` may say what it seems to be.
    ``duplicate`` is about a key that is set twice.
    """

    document: Document
    item: int | None
    path: Path
    line: int
    value: JSONObject | None = None
    added: tuple[str, ...] = ()
    error: ManifestError | None = None
    duplicate: ManifestError | None = None
    note: str = ""


def read_objects(document: Document) -> Iterator[Manifest]:
    """Yield the document's objects in order; a broken object comes with its error."""
    manifests = list(_objects(document))
    if document.duplicate is not None and manifests:
        above = [manifest for manifest in manifests if manifest.line <= document.duplicate.line]
        (above or manifests)[-1].duplicate = document.duplicate
    return iter(manifests)


def _objects(document: Document) -> Iterator[Manifest]:
    if document.error is not None and document.lenient and looks_like_template(document.text):
        yield Manifest(document, None, (), document.line, note=_TEMPLATE_NOTE)
    elif document.error is not None:
        yield Manifest(document, None, (), document.line, error=document.error)
    elif isinstance(document.value, list) and any(map(_looks_like_object, document.value)):
        error = ManifestError(
            "is a list, not an object of the Kubernetes API",
            cure="Put the objects under items of an object with apiVersion: v1 and kind: List",
        )
        yield Manifest(document, None, (), document.line, error=error)
    elif not isinstance(document.value, dict | list):
        yield Manifest(
            document, None, (), document.line, error=_no_object(document.value, document.line)
        )
    elif isinstance(document.value, dict) and _is_list(document.value):
        yield from _items(document, (), document.value, document.line, count())
    else:
        yield _manifest(document, None, (), document.line, document.value)


def _items(
    document: Document, path: Path, value: JSONObject, line: int, numbers: Iterator[int]
) -> Iterator[Manifest]:
    """Yield the items of a List, numbered across nested Lists."""
    items = value.get("items")
    if not isinstance(items, list | None):
        error = ManifestError(
            f"items must be a list, but is {_TYPES[type(items)]}",
            line=line,
            cure="Write the objects as entries of a list, each with - before it",
        )
        yield Manifest(document, None, path, line, error=error)
        return
    lines = document.item_lines if not path and items else []
    for index, item in enumerate(items or ()):
        item_path = (*path, "items", index)
        line = lines[index] if lines else line
        if isinstance(item, dict) and _is_list(item):
            yield from _items(document, item_path, item, line, numbers)
        elif isinstance(item, dict):
            typed, added = _typed(item, value)
            yield _manifest(document, next(numbers), item_path, line, typed, added)
        else:
            yield Manifest(document, next(numbers), item_path, line, error=_no_object(item, line))


def _manifest(
    document: Document,
    item: int | None,
    path: Path,
    line: int,
    value: Any,
    added: tuple[str, ...] = (),
) -> Manifest:
    if not _looks_like_object(value):
        return Manifest(document, item, path, line)
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str):
            if key == "apiVersion" and _is_kustomizes_own(value["kind"]):
                return Manifest(document, item, path, line)
            if key == "apiVersion" and document.lenient and value.get(key) is None:
                return Manifest(document, item, path, line, note=_PATCH_NOTE)
            error = ManifestError(_missing(key, value), line=line, cure=_CURES[key])
            return Manifest(document, item, path, line, value, error=error)
    return Manifest(document, item, path, line, value, added)


def _looks_like_object(value: Any) -> bool:
    """Return whether a document is meant for the API: directories hold other files as well.

    A document with a kind and no apiVersion is one that lacks it.
    """
    return isinstance(value, dict) and value.get("kind") is not None


def _is_list(value: JSONObject) -> bool:
    """Return whether kubectl applies the items: every object with items is a list.

    Source: ``decode`` in ``k8s.io/apimachinery``'s ``unstructured/helpers.go``.
    """
    kind = value.get("kind")
    if kind == "List" and value.get("apiVersion") == "v1":
        return True
    return isinstance(kind, str) and "items" in value


def _is_kustomizes_own(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _KUSTOMIZE_KINDS


def _typed(item: JSONObject, parent: JSONObject) -> tuple[JSONObject, tuple[str, ...]]:
    """Follow ``decodeToList`` in ``k8s.io/apimachinery``'s ``unstructured/helpers.go``."""
    kind, version = parent["kind"].removesuffix("List"), parent.get("apiVersion")
    if not kind or item.get("kind") or item.get("apiVersion"):
        return item, ()
    return {**item, "apiVersion": version, "kind": kind}, ("apiVersion", "kind")


def _missing(key: str, value: JSONObject) -> str:
    if value.get(key) is None:
        return f"{key} is missing"
    return f"{key} must be a string, but is {_TYPES[type(value[key])]}"


def _no_object(value: Any, line: int) -> ManifestError:
    return ManifestError(
        f"is {_TYPES[type(value)]}, not an object of the Kubernetes API",
        line=line,
        cure="Remove it, or write an object with apiVersion and kind",
    )

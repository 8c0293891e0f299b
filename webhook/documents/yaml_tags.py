"""The types of YAML scalars and collections, by their tags or their form."""

from __future__ import annotations

import math
from typing import Any

import yaml

from webhook.documents.errors import ManifestError
from webhook.documents.scalars import Scalar, resolve_plain

_TAG = "tag:yaml.org,2002:"
_NUMBER_TAGS = {f"{_TAG}int": int, f"{_TAG}float": float, f"{_TAG}bool": bool}
_TEXT_TAGS = frozenset({"!", f"{_TAG}str", f"{_TAG}timestamp"})
_NULL_TAG = f"{_TAG}null"
MERGE_TAG = f"{_TAG}merge"
_COLLECTION_TAGS = {
    yaml.MappingStartEvent: (None, "!", f"{_TAG}map"),
    yaml.SequenceStartEvent: (None, "!", f"{_TAG}seq"),
}


def resolve(event: Any) -> Scalar:
    """Return the value of a scalar that is plain or has a tag.

    Raises:
        ManifestError: the tag is unknown or does not fit the value, or JSON has no such value.
    """
    tag, text = event.tag, event.value
    if tag in _TEXT_TAGS:
        return str(text)
    value = resolve_plain(text)
    if tag in _NUMBER_TAGS or tag == _NULL_TAG:
        expected = _NUMBER_TAGS.get(tag, type(None))
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected:
            raise event_error(
                f"{text:.60} is not a valid {tag.removeprefix(_TAG)}, which its tag requires",
                event,
                "Remove the tag",
            )
    elif tag is not None:
        raise _unknown_tag(event)
    if type(value) is float and not math.isfinite(value):
        raise event_error(
            f"{text} is a number that JSON does not have",
            event,
            "Put it in quotes if it is meant as text",
        )
    return value


def check_collection(event: Any) -> None:
    """Reject tags of collections that are neither mappings nor lists for Kubernetes."""
    if event.tag not in _COLLECTION_TAGS[type(event)]:
        raise _unknown_tag(event)


def _unknown_tag(event: Any) -> ManifestError:
    tag = event.tag.replace(_TAG, "!!")
    return event_error(f"the tag {tag:.60} has no meaning in Kubernetes", event, "Remove the tag")


def event_error(problem: str, event: Any, cure: str = "") -> ManifestError:
    """Return an error at the place of an event."""
    mark = event.start_mark
    return ManifestError(problem, line=mark.line + 1, column=mark.column + 1, cure=cure)

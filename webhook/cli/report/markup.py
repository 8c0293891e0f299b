"""HTML that is escaped by construction: only this module turns text into markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

from webhook.wording import printable

_VOID = frozenset({"br", "input", "meta"})

Attribute = str | int | bool | None


class Markup(str):
    """HTML, as opposed to text that is not escaped yet."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """Return an element; children that are not Markup are text, like the values of attributes.

    In an attribute's name, trailing underscores are dropped and others become dashes: ``class_``,
    ``aria_label``. True is an attribute without a value; None and False omit the attribute.
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Return text and markup, concatenated."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def text(value: str) -> Markup:
    """Return text as markup, with control characters and changes of direction as escapes."""
    return Markup(html.escape(printable(value)))


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'

"""HTML that is escaped by construction: text becomes markup only by passing through here."""

from __future__ import annotations

import html
from collections.abc import Iterable

from webhook.cli.wording import printable

_VOID = frozenset({"br", "input", "meta"})

Attribute = str | int | bool | None


class Markup(str):
    """HTML, as opposed to text that has yet to be escaped."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """Return an element; children that are no Markup are text, and so are the attributes' values.

    Of an attribute's name, underscores at its end go and others become dashes: ``class_``,
    ``aria_label``. True stands for an attribute without a value, None and False for none at all.
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Return text and markup one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def text(value: str) -> Markup:
    """Return text as markup. What would act on a reader unseen is shown as an escape.

    That is what a name could carry: control characters, and those that turn the writing's
    direction.
    """
    return Markup(html.escape(printable(value)))


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'

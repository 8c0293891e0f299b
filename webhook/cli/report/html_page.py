"""A page that needs nothing else: no network, no fonts, and no script to be readable.

All that a page shows comes from manifests or from a cluster, so none of it is trusted. Text is
escaped where it becomes markup (``webhook.cli.report.markup``), and a content security policy
allows only this module's own style and script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import NamedTuple

from webhook.cli.report.markup import Markup, element


class Section(NamedTuple):
    """A part of the page, and the anchor that links lead to."""

    id: str
    title: str
    body: Markup


class Number(NamedTuple):
    """A figure at the top; a ``bad`` one is highlighted where it is above 0."""

    value: int
    what: str
    bad: bool = False


def page(
    title: str, subtitle: str, numbers: Sequence[Number], sections: Sequence[Section]
) -> Iterator[str]:
    """Yield a page."""
    yield "<!doctype html>\n"
    yield '<html lang="en">\n'
    yield _head(title)
    yield "<body>\n"
    yield _header(title, subtitle, numbers, sections)
    yield "<main>\n"
    for part in sections:
        heading = element("h2", part.title, id=f"{part.id}-title")
        yield element("section", heading, part.body, id=part.id, aria_labelledby=f"{part.id}-title")
        yield "\n"
    yield "</main>\n"
    yield f"<script>{_asset('page.js')}</script>\n</body>\n</html>\n"


def badge(word: str, kind: str) -> Markup:
    """Return a word that stands out; ``kind`` selects its color."""
    return element("span", word, class_=f"badge {kind}")


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8").strip()


def _head(title: str) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        "<head>\n"
        + element("meta", charset="utf-8")
        + element("meta", http_equiv="Content-Security-Policy", content=policy)
        + element("meta", name="viewport", content="width=device-width, initial-scale=1")
        + element("meta", name="color-scheme", content="light dark")
        + element("meta", name="referrer", content="no-referrer")
        + element("title", title)
        + f"<style>{style}</style>\n</head>\n"
    )


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _header(
    title: str, subtitle: str, numbers: Sequence[Number], parts: Sequence[Section]
) -> Markup:
    figures = [
        element(
            "li",
            element("b", f"{number.value:,}"),
            element("span", number.what),
            class_="bad" if number.bad and number.value else None,
        )
        for number in numbers
    ]
    links = [element("li", element("a", part.title, href=f"#{part.id}")) for part in parts]
    return element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="subtitle") if subtitle else Markup(""),
        element("ul", *figures, class_="numbers"),
        element("nav", element("ul", *links), aria_label="Sections"),
    )

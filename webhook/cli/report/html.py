"""The report as one page that needs nothing else: no network, no fonts, and no script to be read.

Whatever the page shows came from manifests or from a cluster, so nothing of it is trusted: text is
escaped where it becomes markup (``webhook.cli.report.markup``), and a content security policy lets
only this module's own style and script act, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import NamedTuple

from policies.finding import ACTIONS, Finding
from webhook.cli.manifests.evaluate import Result, Verdict
from webhook.cli.manifests.sentence import sentence
from webhook.cli.report.difference import difference
from webhook.cli.report.markup import Markup, element, joined

_VERDICTS: tuple[tuple[Verdict, str], ...] = (
    ("denied", "would be refused"),
    ("mutated", "would be changed"),
    ("allowed", "fine as they are"),
    ("skipped", "without Pods"),
    ("invalid", "broken"),
)
_MARKS = {"+": "added", "-": "removed", "@": "aside", " ": ""}
_EVERY = "all"


class Section(NamedTuple):
    """A part of the page, with what leads to it."""

    id: str
    title: str
    body: Markup


class Number(NamedTuple):
    """A figure at the top; one that is ``bad`` is marked where it is over 0."""

    value: int
    what: str
    bad: bool = False


def report(
    results: Iterable[Result],
    title: str = "gpufence check",
    subtitle: str = "",
    numbers: Sequence[Number] = (),
    sections: Sequence[Section] = (),
    notes: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the page. ``numbers`` and ``sections`` come before those of the findings.

    ``notes`` say what the reader must know of how the results came about.
    """
    kept = list(results)
    parts = [*sections, _findings_section(kept), *_changes_section(kept), *_errors_section(kept)]
    if notes:
        items = element("ul", *(element("li", note) for note in notes), class_="plain")
        parts.append(Section("notes", "Notes", items))
    yield "<!doctype html>\n"
    yield '<html lang="en">\n'
    yield _head(title)
    yield "<body>\n"
    yield _header(title, subtitle, [*_verdict_numbers(kept), *numbers], parts)
    yield "<main>\n"
    for part in parts:
        heading = element("h2", part.title, id=f"{part.id}-title")
        yield element("section", heading, part.body, id=part.id, aria_labelledby=f"{part.id}-title")
        yield "\n"
    yield "</main>\n"
    yield f"<script>{_asset('page.js')}</script>\n</body>\n</html>\n"


def title_of(result: Result) -> str:
    """Return kind, namespace and name of an object, as far as there are any."""
    name = "/".join(filter(None, (result.namespace, result.name)))
    return f"{result.kind or 'document'} {name}".rstrip()


def badge(word: str, kind: str) -> Markup:
    """Return a word that stands out; ``kind`` picks its colour."""
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


def _verdict_numbers(results: Sequence[Result]) -> list[Number]:
    counts = Counter(result.verdict for result in results)
    bad = ("denied", "invalid")
    return [
        Number(len(results), "objects"),
        *(
            Number(counts[verdict], words, verdict in bad)
            for verdict, words in _VERDICTS
            if counts[verdict] or verdict == "denied"
        ),
    ]


def _findings_section(results: Sequence[Result]) -> Section:
    found = [
        (result, finding)
        for result in results
        if result.decision is not None
        for finding in result.decision.findings
    ]
    # What is refused comes first; among the same, the order of the objects.
    found.sort(key=lambda pair: ACTIONS.index(pair[1].action))
    if not found:
        return Section("findings", "Findings", element("p", "Nothing was found.", class_="none"))
    items = element("ol", *(_finding(*pair) for pair in found), class_="findings", id="found")
    count = element("p", _count(len(found)), id="count", role="status")
    return Section("findings", "Findings", joined([_filters(found), count, items]))


def _count(number: int) -> str:
    return "1 finding" if number == 1 else f"{number:,} findings"


def _filters(found: Sequence[tuple[Result, Finding]]) -> Markup:
    """Return the form that filters; the script shows it, since without one it does nothing."""
    rules = sorted({finding.rule for _, finding in found})
    namespaces = sorted({result.namespace for result, _ in found if result.namespace})
    actions = [action for action in ACTIONS if any(f.action == action for _, f in found)]
    search = element(
        "input", type="search", name="text", placeholder="name, path, message …", autocomplete="off"
    )
    return element(
        "form",
        element("label", element("span", "Text"), search, class_="wide"),
        _choice("rule", "Rule", rules),
        _choice("namespace", "Namespace", namespaces),
        _choice("action", "Action", actions),
        element("button", "Show all", type="reset"),
        id="filters",
        role="search",
        aria_label="Filter the findings",
        hidden=True,
    )


def _choice(name: str, label: str, values: Iterable[str]) -> Markup:
    options = [element("option", _EVERY, value="")]
    options += [element("option", value, value=value) for value in values]
    return element("label", element("span", label), element("select", *options, name=name))


def _finding(result: Result, finding: Finding) -> Markup:
    place = result.manifest.document.path
    advice = (
        element("p", element("b", "What to do: "), f"{finding.advice}.", class_="advice")
        if finding.advice
        else Markup("")
    )
    return element(
        "li",
        element(
            "p",
            badge(finding.action, finding.action),
            element("span", finding.rule, class_="rule"),
            element("strong", title_of(result)),
            class_="head",
        ),
        element("p", element("b", f"{_capitalized(finding.reason)}: "), f"{finding.detail}."),
        advice,
        element("p", element("code", finding.path), " in ", place, class_="place"),
        data_rule=finding.rule,
        data_namespace=result.namespace,
        data_action=finding.action,
    )


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _changes_section(results: Sequence[Result]) -> Iterator[Section]:
    changed = [
        _change(result)
        for result in results
        if result.decision is not None and result.decision.mutated is not result.decision.original
    ]
    if changed:
        intro = "What gpufence adds to Pods as they are created. Nothing is taken away."
        yield Section("changes", "Changes", joined([element("p", intro), *changed]))


def _change(result: Result) -> Markup:
    decision = result.decision
    lines = [
        element("span", "⋯" if mark == "@" else f"{mark}{line}", class_=_MARKS[mark] or None)
        for mark, line in (difference(decision.original, decision.mutated) if decision else ())
    ]
    summary = element("summary", badge(result.verdict, result.verdict), " ", title_of(result))
    return element("details", summary, element("pre", *lines, tabindex=0), class_="change")


def _errors_section(results: Sequence[Result]) -> Iterator[Section]:
    errors = [
        element("li", sentence(result.manifest.document, result.error))
        for result in results
        if result.error is not None
    ]
    if errors:
        yield Section("errors", "Broken", element("ul", *errors, class_="plain"))

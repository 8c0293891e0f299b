"""The report as one page, for people who do not work in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from policies.finding import ACTIONS, Finding
from webhook.cli.manifests.evaluate import Result, Verdict
from webhook.cli.report.content import CheckReport
from webhook.cli.report.difference import difference
from webhook.cli.report.findings import remediation, rule_page
from webhook.cli.report.html_page import Number, Section, badge, page
from webhook.cli.report.markup import Markup, element, joined
from webhook.cli.report.places import finding_place
from webhook.documents.documents import sentence
from webhook.wording import counted

_VERDICTS: tuple[tuple[Verdict, str], ...] = (
    ("denied", "denied"),
    ("mutated", "mutated"),
    ("allowed", "allowed"),
    ("unknown", "not judged"),
    ("skipped", "skipped (no pod template)"),
    ("invalid", "invalid"),
)
_MARKS = {"+": "added", "-": "removed", "@": "aside", " ": ""}
_EVERY = "all"


def report(content: CheckReport) -> Iterator[str]:
    """Yield the page."""
    results = list(content.results)
    subtitle = f"{content.created:%Y-%m-%d %H:%M} UTC, policy: {content.policy}"
    yield from page("gpufence check", subtitle, verdict_numbers(results), result_sections(results))


def verdict_numbers(results: Sequence[Result]) -> list[Number]:
    """Return how many objects have which verdict."""
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


def result_sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections about findings, changes and invalid manifests."""
    return [_findings_section(results), *_changes_section(results), *_errors_section(results)]


def _findings_section(results: Sequence[Result]) -> Section:
    findings = [
        (result, finding)
        for result in results
        if result.decision is not None
        for finding in result.decision.findings
    ]
    # Enforced findings come first; within an action, the objects keep their order.
    findings.sort(key=lambda pair: ACTIONS.index(pair[1].action))
    if not findings:
        return Section("findings", "Findings", element("p", "No findings.", class_="none"))
    items = element("ol", *(_finding(*pair) for pair in findings), class_="findings", id="found")
    count = element("p", counted(len(findings), "finding"), id="count", role="status")
    return Section("findings", "Findings", joined([_filters(findings), count, items]))


def _filters(findings: Sequence[tuple[Result, Finding]]) -> Markup:
    """Return the form that filters. Only the script shows it, as it has no effect without."""
    rules = sorted({finding.rule for _, finding in findings})
    namespaces = sorted({result.namespace for result, _ in findings if result.namespace})
    actions = [action for action in ACTIONS if any(f.action == action for _, f in findings)]
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
    place = finding_place(result, finding)
    where = f"{place.path}:{place.line}" if place.line else place.path
    cure = remediation(finding)
    return element(
        "li",
        element(
            "p",
            badge(finding.action, finding.action),
            _rule(finding.rule),
            element("strong", result.title),
            class_="head",
        ),
        element("p", element("b", f"{_capitalized(finding.reason)}: "), f"{finding.detail}."),
        element("p", element("b", "Remediation: "), cure, class_="remediation")
        if cure
        else Markup(""),
        element("p", element("code", finding.path), " in ", where, class_="place"),
        data_rule=finding.rule,
        data_namespace=result.namespace,
        data_action=finding.action,
    )


def _rule(rule: str) -> Markup:
    if address := rule_page(rule):
        return element("a", rule, href=address, rel="noreferrer", class_="rule")
    return element("span", rule, class_="rule")


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _changes_section(results: Sequence[Result]) -> Iterator[Section]:
    changed = [
        _change(result)
        for result in results
        if result.decision is not None and result.decision.operations
    ]
    if changed:
        intro = "What gpufence adds to Pods when they are created. It removes nothing."
        yield Section("changes", "Changes", joined([element("p", intro), *changed]))


def _change(result: Result) -> Markup:
    decision = result.decision
    lines = [
        element("span", "⋯" if mark == "@" else f"{mark}{line}", class_=_MARKS[mark] or None)
        for mark, line in (difference(decision.original, decision.mutated) if decision else ())
    ]
    summary = element("summary", badge(result.verdict, result.verdict), " ", result.title)
    return element("details", summary, element("pre", *lines, tabindex=0), class_="change")


def _errors_section(results: Sequence[Result]) -> Iterator[Section]:
    errors = [
        element("li", sentence(result.manifest.document, result.error))
        for result in results
        if result.error is not None
    ]
    if errors:
        yield Section("errors", "Invalid", element("ul", *errors, class_="plain"))

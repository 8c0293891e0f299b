"""The report of an audit as one page, for people who do not work in a terminal.

The page needs nothing else: no network, no fonts, and no script. All that it shows comes from
manifests or from a cluster, so none of it is trusted: Jinja escapes it, and a content security
policy allows only the page's own style, by its hash. The templates are in
``templates``: ``page.html``, and a file for each section.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from policies.finding import ACTIONS
from webhook.documents.document import sentence
from webhook.tools.audit.waste import WASTE
from webhook.tools.cli.evaluate import Result, Verdict
from webhook.tools.cli.report.content import (
    AuditReport,
    finding_place,
    pool_summary,
    remediation,
    rule_page,
    waste_sentences,
)
from webhook.tools.cli.yaml_writer import difference
from webhook.wording import counted, printable

if TYPE_CHECKING:
    from webhook.tools.audit.pools import PoolNode, PoolState

_TEMPLATES = Path(__file__).parent / "templates"
_TITLES = {
    "waste": "Waste",
    "pools": "Pools",
    "findings": "Findings",
    "changes": "Changes",
    "errors": "Invalid",
    "notes": "Notes",
}
_SHADES = 6
_VERDICTS: tuple[tuple[Verdict, str], ...] = (
    ("denied", "denied"),
    ("mutated", "mutated"),
    ("allowed", "allowed"),
    ("unknown", "unknown"),
    ("skipped", "skipped (no pod template)"),
    ("invalid", "invalid"),
)


class _Number(NamedTuple):
    """A figure at the top; a ``bad`` one is highlighted where it is above 0."""

    value: int
    what: str
    bad: bool = False


def audit(report: AuditReport) -> Iterator[str]:
    """Yield the page of an audit, with a picture of the pools."""
    pools = report.audit.pools
    subtitle = f"{report.cluster}, {report.created:%Y-%m-%d %H:%M} UTC, policy: {report.policy}"
    free = (each for state in pools for each in state.free.items())
    unfenced = {n.name for s in pools for n in s.nodes.values() if not n.has_taint}
    numbers = [
        *_verdict_numbers(report.results),
        _Number(report.audit.pods, "running Pods"),
        *(_Number(count, f"{name} free") for name, count in _by_name(free).items()),
        _Number(sum(state.trespassers for state in pools), "trespassers", bad=True),
        _Number(len(unfenced), "GPU nodes without taint", bad=True),
        *_wasted(report),
    ]
    sections: dict[str, Sequence[Any]] = {
        "waste": [row for row in report.waste if row.kind not in ("held", "overtime")],
        "pools": pools,
        **_sections(report.results),
        "notes": [*(f"Not audited: {title}" for title in report.audit.skipped), *report.remarks],
    }
    listed = {f"list-{number}": each for number, each in enumerate(report.lists) if each[1]}
    titles = {**_TITLES, **{name: title for name, (title, _) in listed.items()}}
    yield _page(
        report.command,
        subtitle,
        numbers,
        {**{name: lines for name, (_, lines) in listed.items()}, **sections},
        titles,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters |= {"counted": counted}
    environment.globals |= {
        "cells": _cells,
        "difference": difference,
        "free_devices": _free_devices,
        "place": finding_place,
        "pool_summary": pool_summary,
        "remediation": remediation,
        "rule_page": rule_page,
        "shades": _SHADES,
        "usages": _usages,
        "waste_sentences": waste_sentences,
    }
    return environment.get_template("page.html")


def _page(
    command: str,
    subtitle: str,
    numbers: Sequence[_Number],
    sections: Mapping[str, Sequence[Any]],
    titles: Mapping[str, str],
) -> str:
    """Return a page. Each section shows what it gets; only findings stay if there are none."""
    css = (_TEMPLATES / "page.css").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode("ascii")
    shown = {name: items for name, items in sections.items() if items or name == "findings"}
    page = _template().render(
        command=command,
        titles=titles,
        subtitle=subtitle,
        numbers=numbers,
        sections=shown,
        style=Markup(css),  # noqa: S704 - an own file
        style_hash=f"sha256-{digest}",
    )
    return f"{page}\n"


def _printable(value: Any) -> Any:
    """Write control characters and changes of direction as escapes, wherever text is shown."""
    return value if isinstance(value, Markup) else printable(str(value))


def _verdict_numbers(results: Sequence[Result]) -> list[_Number]:
    counts = Counter(result.verdict for result in results if result.is_object)
    return [
        _Number(counts.total(), "objects"),
        *(
            _Number(counts[verdict], words, bad=verdict in ("denied", "invalid"))
            for verdict, words in _VERDICTS
            if counts[verdict] or verdict == "denied"
        ),
    ]


def _wasted(report: AuditReport) -> Iterator[_Number]:
    if report.waste:
        wasted = ((row.resource, row.hours) for row in report.waste if row.kind in WASTE)
        for name, hours in _by_name(wasted).items():
            what = f"device-hours of {name} wasted in {report.hours:g} h"
            yield _Number(hours, what, bad=True)


def _by_name(counts: Iterable[tuple[str, float]]) -> dict[str, int]:
    """Return the rounded sum of each name, in the order of the names."""
    total: defaultdict[str, float] = defaultdict(float)
    for name, count in counts:
        total[name] += count
    return {name: round(count) for name, count in sorted(total.items())}


def _sections(results: Sequence[Result]) -> dict[str, Sequence[Any]]:
    """Return the sections about findings, changes and invalid manifests."""
    findings = [(result, finding) for result in results for finding in result.findings]
    # Enforced findings come first; within an action, the objects keep their order.
    findings.sort(key=lambda pair: ACTIONS.index(pair[1].action))
    return {
        "findings": findings,
        "changes": [r for r in results if r.decision.operations],
        "errors": [sentence(r.manifest.document, r.error) for r in results if r.error is not None],
    }


# What the section of the pools shows.


def _usages(state: PoolState) -> Iterable[tuple[str, str, int, int, int]]:
    """Return namespace, name of devices, how many are on nodes and waited for, and the share in %.

    The share is that of the pool's devices with the name. The largest of each name come first.
    """
    offered, usages = state.offered, []
    for namespace, (placed, waiting) in state.by_namespace.items():
        for name in placed | waiting:
            whole = offered[name]
            share = min(100, round(100 * placed[name] / whole)) if whole else 0
            usages.append((namespace, name, placed[name], waiting[name], share))
    return sorted(usages, key=lambda usage: (usage[1], -usage[2], usage[0]))


def _free_devices(node: PoolNode) -> Iterable[tuple[str, str]]:
    """Yield each resource of a node, and how many of its devices are free."""
    for resource in dict.fromkeys([*node.offered, *node.held]):
        offered = node.offered.get(resource, 0)
        yield resource, f"{node.free.get(resource, 0)} of {counted(offered, 'device')} free"


def _cells(node: PoolNode, resource: str) -> Iterator[tuple[str, str]]:
    """Yield a class and a sign for each device: the number of the Pod that holds it."""
    offered, drawn = node.offered.get(resource, 0), 0
    for number, holding in enumerate(node.holdings, 1):
        for _ in range(holding.count if holding.resource == resource else 0):
            drawn += 1
            yield f"held s{number % _SHADES}{' over' if drawn > offered else ''}", str(number)
    for _ in range(offered - drawn):
        yield "free", ""

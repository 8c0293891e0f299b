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
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from policies.finding import ACTIONS
from webhook.documents.document import sentence
from webhook.tools.audit.waste import WASTE
from webhook.tools.cli.evaluate import VERDICTS
from webhook.tools.cli.report.content import (
    AuditReport,
    finding_place,
    pool_summary,
    remediation,
    rule_page,
    usages,
    waste_sentences,
)
from webhook.tools.cli.yaml_writer import difference
from webhook.wording import counted, printable

if TYPE_CHECKING:
    from webhook.tools.audit.pools import PoolNode

_TEMPLATES = Path(__file__).parent / "templates"
_SHADES = 6


class _Number(NamedTuple):
    """A figure at the top; a ``bad`` one is highlighted where it is above 0."""

    value: int
    what: str
    bad: bool = False


def audit(report: AuditReport) -> Iterator[str]:
    """Yield the page of an audit, with a picture of the pools."""
    sections = _sections(report)
    shown = {title: items for title, items in sections.items() if items or title == "Findings"}
    css = (_TEMPLATES / "page.css").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode("ascii")
    # In pieces: of a large cluster, the page has tens of megabytes.
    yield from _template().generate(
        command=report.command,
        subtitle=f"{report.cluster}, {report.created:%Y-%m-%d %H:%M} UTC, policy: {report.policy}",
        numbers=[*_numbers(report)],
        rows=report.waste,
        sections=shown,
        style=Markup(css),  # noqa: S704 - an own file
        style_hash=f"sha256-{digest}",
    )
    yield "\n"


def _numbers(report: AuditReport) -> Iterator[_Number]:
    pools = report.audit.pools
    counts = Counter(result.verdict for result in report.results if result.is_object)
    yield _Number(counts.total(), "objects")
    yield _Number(counts["denied"], "denied", bad=True)
    for verdict in VERDICTS:
        if counts[verdict] and verdict != "denied":
            yield _Number(counts[verdict], verdict, bad=verdict == "invalid")
    yield _Number(report.audit.pods, "running Pods")
    for name, count in sorted(sum((state.free for state in pools), Counter[str]()).items()):
        yield _Number(count, f"{name} free")
    yield _Number(sum(state.trespassers for state in pools), "trespassers", bad=True)
    unfenced = {n.name for s in pools for n in s.nodes.values() if not n.has_taint}
    yield _Number(len(unfenced), "GPU nodes without taint", bad=True)
    wasted: defaultdict[str, float] = defaultdict(float)
    for row in report.waste:
        if row.kind in WASTE:
            wasted[row.resource] += row.hours
    for name, hours in sorted(wasted.items()):
        what = f"device-hours of {name} wasted in {report.hours:g} h"
        yield _Number(round(hours), what, bad=True)


def _sections(report: AuditReport) -> dict[str, Sequence[Any]]:
    """Return the sections that have a template of their own, or one line for each item."""
    results = report.results
    findings = [(result, finding) for result in results for finding in result.findings]
    # Enforced findings come first; within an action, the objects keep their order.
    findings.sort(key=lambda pair: ACTIONS.index(pair[1].action))
    return {
        "Waste": [row for row in report.waste if row.kind not in ("held", "overtime")],
        **dict(report.lists),
        "Pools": report.audit.pools,
        "Findings": findings,
        "Changes": [result for result in results if result.decision.operations],
        "Invalid": [sentence(r.manifest.document, r.error) for r in results if r.error is not None],
        "Notes": [*(f"Not audited: {title}" for title in report.audit.skipped), *report.remarks],
    }


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
        "devices": _devices,
        "difference": difference,
        "place": finding_place,
        "pool_summary": pool_summary,
        "remediation": remediation,
        "rule_page": rule_page,
        "shades": _SHADES,
        "usages": usages,
        "waste_sentences": waste_sentences,
    }
    return environment.get_template("page.html")


def _printable(value: Any) -> Any:
    """Write control characters and changes of direction as escapes, wherever text is shown."""
    return value if isinstance(value, Markup) else printable(str(value))


# What the section of the pools shows.


def _devices(node: PoolNode) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each resource of a node, how many of its devices are free, and a cell for each device.

    A cell has a class, and the number of the Pod that holds the device.
    """
    for resource in dict.fromkeys([*node.offered, *node.held]):
        offered = node.offered.get(resource, 0)
        cells = [
            (f"held s{number % _SHADES}", str(number))
            for number, (_, name, count) in enumerate(node.holdings, 1)
            for _ in range(count if name == resource else 0)
        ]
        cells[offered:] = [(f"{kind} over", sign) for kind, sign in cells[offered:]]
        cells += [("free", "")] * (offered - len(cells))
        yield resource, f"{node.free.get(resource, 0)} of {counted(offered, 'device')} free", cells

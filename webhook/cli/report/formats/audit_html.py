"""The report as one page, with a picture of the pools."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.cli.report import html_pools
from webhook.cli.report.audit_results import remarks
from webhook.cli.report.content import AuditReport
from webhook.cli.report.formats.check_html import result_sections, verdict_numbers
from webhook.cli.report.html_page import Section, page
from webhook.cli.report.markup import element


def report(content: AuditReport) -> Iterator[str]:
    """Yield the page."""
    audit, results = content.audit, list(content.results)
    subtitle = f"{content.cluster}, {content.created:%Y-%m-%d %H:%M} UTC, policy: {content.policy}"
    numbers = [*verdict_numbers(results), *html_pools.numbers(audit.pools, audit.pods)]
    sections = [html_pools.section(audit.pools)] if audit.pools else []
    sections += result_sections(results)
    if notes := [*(f"Not audited: {title}" for title in audit.skipped), *remarks(audit)]:
        items = element("ul", *(element("li", note) for note in notes), class_="plain")
        sections.append(Section("notes", "Notes", items))
    return page("gpufence audit", subtitle, numbers, sections)

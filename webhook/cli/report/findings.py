"""Findings as sentences, the same in every report."""

from __future__ import annotations

from policies.finding import Finding

_RULE_PAGES = "https://gpufence.dev/rules"


def message(finding: Finding) -> str:
    """Return what is wrong, as a sentence."""
    return f"{finding.reason}: {finding.detail}."


def remediation(finding: Finding) -> str:
    """Return what to do, as a sentence; empty where the finding does not say."""
    return f"{finding.remediation}." if finding.remediation else ""


def paragraph(finding: Finding) -> str:
    """Return what is wrong and what to do."""
    return f"{message(finding)} {remediation(finding)}".rstrip()


def rule_page(rule: str) -> str:
    """Return the address of a rule's page; empty for what an audit alone finds."""
    from policies.registry import RULES

    return f"{_RULE_PAGES}/{rule}.html" if any(known.id == rule for known in RULES) else ""

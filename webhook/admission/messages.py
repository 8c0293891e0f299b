"""Findings as the texts that a response has room for: denial, warnings, audit annotations."""

from __future__ import annotations

from collections.abc import Sequence

from policies.decision import Decision
from policies.finding import Finding

# An API server cuts warnings after 256 characters as soon as all warnings of a request together
# exceed 4096, and then drops the rest. Source: k8s.io/apiserver, pkg/endpoints/filters/warning.go.
WARNING_LENGTH = 256
MAX_WARNINGS = 4096 // WARNING_LENGTH

# What a ValidatingAdmissionPolicy's audit annotations are cut to (k8s.io/api, admissionregistration
# v1, AuditAnnotation); those of webhooks have no limit but the log's own.
ANNOTATION_LENGTH = 10 * 1024


# An API server passes on every byte, and a Pod of megabytes can have
# thousands of findings.
REFUSAL_LENGTH = 16 * 1024


def refusal(findings: Sequence[Finding], kind: str) -> str:
    """Return the message of a denial: how many things were found, then a line for each of them.

    Where they are very many, the last line says how many more there are.
    """
    count = "1 thing" if len(findings) == 1 else f"{len(findings)} things"
    lines = [f"gpufence found {count} to change in this {kind}:"]
    room = REFUSAL_LENGTH
    for index, finding in enumerate(findings):
        line = _cut(f"- {finding.rule}: {finding.message}", REFUSAL_LENGTH)
        room -= len(line)
        if room < 0 < index:
            left = len(findings) - index
            lines.append(f"- and {left} more; `gpufence check` on the manifest shows all")
            break
        lines.append(line)
    return "\n".join(lines)


def warnings(findings: Sequence[Finding], known: Sequence[Finding] = ()) -> list[str]:
    """Return a warning for each finding, in the length and number that an API server passes on.

    ``known`` are findings that do not deny the change, because they existed before it.
    """
    texts = [_warning(finding) for finding in findings]
    texts += [_warning(finding, "not refused, since not new: ") for finding in known]
    if len(texts) > MAX_WARNINGS:
        left = len(texts) - MAX_WARNINGS + 1
        more = f"gpufence found {left} more; `gpufence check` on the manifest shows all"
        texts = [*texts[: MAX_WARNINGS - 1], more]
    return texts


def warning(text: str) -> str:
    """Return the text as one line that an API server passes on."""
    return _cut(_one_line(text), WARNING_LENGTH)


def audit_annotations(decision: Decision) -> dict[str, str]:
    """Return the audit annotations: what each rule found, and what was let go and why.

    The keys are rule ids, ``excepted``, ``known`` and ``exempt``: names without a prefix, before
    which an API server puts the name of the webhook and a slash.
    """
    if not (decision.findings or decision.excepted or decision.known or decision.exemption):
        return {}
    by_rule: dict[str, list[Finding]] = {}
    for finding in decision.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    texts = {
        rule: f"{found[0].action}: {'; '.join(finding.message for finding in found)}"
        for rule, found in by_rule.items()
    }
    for key, findings in (("excepted", decision.excepted), ("known", decision.known)):
        if findings:
            texts[key] = "; ".join(f"{f.rule}: {f.message}" for f in findings)
    if decision.exemption:
        texts["exempt"] = decision.exemption
    return {key: _cut(text, ANNOTATION_LENGTH) for key, text in texts.items()}


def _warning(finding: Finding, note: str = "") -> str:
    """Return the finding in one line; where it is too long, what was found gives way first."""
    text = _one_line(f"{note}{finding.rule}: {finding.message}")
    if len(text) > WARNING_LENGTH:
        text = f"{note}{finding.rule}: {finding.reason} (at {finding.path}). {finding.remediation}"
    return warning(text)


def _one_line(text: str) -> str:
    """Return the text without control characters, for which an API server drops a warning."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"

"""The texts of a response: denial, warnings and audit annotations, within their limits."""

from __future__ import annotations

from collections.abc import Sequence

from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.editor import PatchOperation
from policies.kubernetes.paths import pointer
from policies.rules.set_restricted_security_context import USER_ANNOTATION

# An API server cuts warnings after 256 characters as soon as all warnings of a request together
# exceed 4096, and then drops the rest. Source: k8s.io/apiserver, pkg/endpoints/filters/warning.go.
WARNING_LENGTH = 256
MAX_WARNINGS = 4096 // WARNING_LENGTH

# What a ValidatingAdmissionPolicy's audit annotations are cut to (k8s.io/api, admissionregistration
# v1, AuditAnnotation); those of webhooks have no limit but the log's own.
ANNOTATION_LENGTH = 10 * 1024

# An API server passes on every byte, and a Pod of megabytes can have thousands of findings.
DENIAL_LENGTH = 16 * 1024

_LONGEST_WORD = 64
"""A longer word is cut where the text ends; others are left out."""

_ANNOTATIONS = pointer(("metadata", "annotations"))
_ANNOTATION_OF_USER = pointer(("metadata", "annotations", USER_ANNOTATION))

_NOT_YET = "not enforced yet: "
_NOT_DENIED = "not denied, because the old object has it too: "


def denial(findings: Sequence[Finding], obj: str, help_: str = "") -> str:
    """Return the message of a denial: the number of findings, then a line for each of them.

    If the message becomes too long, a line has the number of the remaining findings. The last line
    is the help of the policy. ``obj`` is kind and name of the object.
    """
    count = "1 problem" if len(findings) == 1 else f"{len(findings):,} problems"
    lines = [f"gpufence found {count} in {obj}:"]
    room = DENIAL_LENGTH
    for index, finding in enumerate(findings):
        line = cut(f"- {finding.rule}: {finding.message}")
        room -= len(line)
        if room < 0 < index:
            left = len(findings) - index
            lines.append(f"- and {left:,} more; to see all, run `gpufence check` on the manifest")
            break
        lines.append(line)
    return "\n".join([*lines, help_] if help_ else lines)


def warnings(findings: Sequence[Finding], known: Sequence[Finding] = ()) -> list[str]:
    """Return a warning for each finding, within the limits of the API server.

    ``known`` are findings of the old object, which do not deny the update.
    """
    texts = [_warning(finding, _note(finding)) for finding in (*findings, *known)]
    if len(texts) > MAX_WARNINGS:
        left = len(texts) - MAX_WARNINGS + 1
        more = f"gpufence found {left} more; to see all, run `gpufence check` on the manifest"
        texts = [*texts[: MAX_WARNINGS - 1], more]
    return texts


def assigned_user(operations: Sequence[PatchOperation]) -> list[str]:
    """Return the warning that a patch gives a Pod a user ID; nothing if it does not."""
    for operation in reversed(operations):
        if operation.path == _ANNOTATIONS:
            user = operation.value.get(USER_ANNOTATION)
        elif operation.path == _ANNOTATION_OF_USER:
            user = operation.value
        else:
            continue
        if user:
            text = f"gpufence runs this Pod as user {user}, because the Pod sets no user"
            return [f"{text}. To use another one, set spec.securityContext.runAsUser"]
    return []


def warning(text: str) -> str:
    """Return the text as one line within the limit of the API server."""
    return cut(_one_line(text), WARNING_LENGTH)


def audit_annotations(decision: Decision) -> dict[str, str]:
    """Return the audit annotations: the findings of each rule, and what does not count and why.

    The keys are rule ids, ``excepted``, ``known`` and ``exempt``. An API server adds the name of
    the webhook and a slash as a prefix.
    """
    by_rule: dict[str, list[Finding]] = {}
    for finding in decision.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    texts = {
        rule: f"{of_rule[0].outcome}: {'; '.join(finding.message for finding in of_rule)}"
        for rule, of_rule in by_rule.items()
    }
    for key, findings in (("excepted", decision.excepted), ("known", decision.known)):
        if findings:
            texts[key] = "; ".join(f"{f.rule}: {f.message}" for f in findings)
    if decision.exemption:
        texts["exempt"] = decision.exemption
    return {key: cut(text, ANNOTATION_LENGTH) for key, text in texts.items()}


def _note(finding: Finding) -> str:
    """Return why a warning does not deny, if its rule does in another case."""
    if finding.action == "enforce":
        return _NOT_DENIED
    return "" if finding.would is None else _NOT_YET


def _warning(finding: Finding, note: str = "") -> str:
    """Return the finding in one line.

    If it is too long, without its remediation, so that its numbers remain, or without its detail,
    and then with as much of the remediation as there is room for: all, a sentence, or nothing.
    """
    start = f"{note}{finding.rule}: "
    reason = f"{finding.path}: {finding.reason}"
    first = finding.remediation.partition(". ")[0]
    for text in (
        finding.message,
        f"{finding.path}: {finding.detail}",
        f"{reason}. {finding.remediation}",
        f"{reason}. {first}",
        reason,
    ):
        line = _one_line(start + text)
        if len(line) <= WARNING_LENGTH:
            return line
    return warning(line)


def _one_line(text: str) -> str:
    """Return the text without control characters: an API server drops warnings with them."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cut(text: str, length: int = DENIAL_LENGTH) -> str:
    """Return the text, or its first words and an ellipsis."""
    if len(text) <= length:
        return text
    head = text[: length - 1]
    words, _, rest = head.rpartition(" ")
    return f"{words if len(rest) < _LONGEST_WORD else head.rstrip()}…"

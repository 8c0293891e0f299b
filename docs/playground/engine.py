"""What the playground runs in Python: gpufence's own functions on the texts of its editors.

The worker imports this module and the wheel of gpufence. Each public function takes texts and
returns JSON for the page.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from policies.facts import Request
from policies.policy import Policy
from webhook.documents.document import InputError, explanation
from webhook.documents.policy_files import load_policy
from webhook.tools.cli.commands.check import MISSING_FACTS
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.explanation import report as explain
from webhook.tools.cli.manifests import (
    no_nodes,
    no_objects_message,
    read_file,
    read_manifests,
)
from webhook.tools.cli.options import warn
from webhook.tools.cli.report.content import finding_place, message, object_place, remediation
from webhook.tools.cli.report.output import Terminal
from webhook.tools.cli.yaml_writer import difference

MANIFEST, POLICY, NODES = "manifest.yaml", "policy.yaml", "nodes.yaml"
"""The names of the editors' texts, in messages and as files of the worker."""

_TITLE, _CHANGE = 2, 6
"""The indentation of titles, and of changes by mutations, in explanations."""

_MARKS = {" ": "unchanged", "+": "added", "-": "removed", "@": "aside"}
_PLACE = re.compile(r"([\w.]+\.yaml)(?::(\d+)(?::\d+)?)?: ")


def check(manifest: str, policy: str | None, nodes: str, namespace: str) -> str:
    """Return the verdict on each object of a manifest, with findings, changes and reasons.

    Without a text, ``policy`` is gpufence's default policy. ``nodes`` may be empty.
    """
    Path(MANIFEST).write_text(manifest)
    try:
        chosen = _policy(policy)
        results = _results(chosen, nodes, namespace)
    except InputError as error:
        return json.dumps({"errors": list(map(_problem, error.lines)), "objects": []})
    return json.dumps({"errors": [], "objects": [_object(result, chosen) for result in results]})


def discover(nodes: str) -> str:
    """Return the policy that ``gpufence policy discover`` writes for nodes, and its messages."""
    from webhook.tools.cli.main import main

    Path(NODES).write_text(nodes)
    policy, messages = io.StringIO(), io.StringIO()
    with redirect_stdout(policy), redirect_stderr(messages):
        main(["policy", "discover", "--nodes", NODES])
    problems = [_problem(line) for line in messages.getvalue().splitlines()]
    return json.dumps({"policy": policy.getvalue(), "errors": problems})


def _policy(text: str | None) -> Policy:
    if text is None:
        return load_policy(None)
    Path(POLICY).write_text(text)
    return load_policy(POLICY)


def _results(policy: Policy, nodes: str, namespace: str) -> list[Result]:
    manifests = read_manifests([MANIFEST])
    if not manifests:
        raise InputError([no_objects_message([MANIFEST], "Write a manifest, or choose a sample")])
    request = Request(namespace=namespace, today=datetime.now(UTC).date())
    if not nodes.strip():
        return list(evaluate(manifests, policy, request))
    from webhook.cluster.files import facts_of_nodes

    Path(NODES).write_text(nodes)
    facts = facts_of_nodes(read_file(NODES), policy, warn)
    if facts is None:
        raise no_nodes(NODES)
    return list(evaluate(manifests, policy, request, facts))


def _problem(text: str) -> dict[str, Any]:
    """Return a message with the editor and the line that it names."""
    text = text.removeprefix("Error: ").removeprefix("Warning: ")
    place = _PLACE.match(text)
    if place is None:
        return {"file": "", "line": 0, "text": text}
    return {"file": place[1], "line": int(place[2] or 0), "text": text[place.end() :]}


def _object(result: Result, policy: Policy) -> dict[str, Any]:
    error, decision = result.error, result.decision
    return {
        "verdict": result.verdict,
        "title": result.title,
        "line": object_place(result).line,
        "error": explanation(result.manifest.document, error) if error else "",
        "note": result.note,
        "missing": [MISSING_FACTS[fact] for fact in decision.missing_facts],
        "findings": [
            {
                "rule": finding.rule,
                "action": finding.action,
                "line": finding_place(result, finding).line,
                "path": finding.path,
                "message": message(finding),
                "remediation": remediation(finding),
            }
            for finding in result.findings
        ],
        "changes": difference(decision.original, decision.mutated),
        "reasons": _sections("".join(explain(Terminal(), [result], policy)))
        if decision.has_template
        else [],
    }


def _sections(text: str) -> list[dict[str, Any]]:
    """Return the sections of an explanation: a title, and lines as spans of text with a role.

    What stands before the first title is the object itself, which the page shows already.
    """
    sections: list[dict[str, Any]] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == _TITLE:
            sections.append({"title": line.strip(), "lines": []})
        elif sections and indent >= _CHANGE and not line.startswith("Why", _CHANGE):
            role = _MARKS.get(line[_CHANGE], "") if sections[-1]["title"] == "Mutations" else ""
            spans = [(line[_CHANGE:], role)]
            sections[-1]["lines"].append({"indent": 2, "spans": spans, "wraps": not role})
        elif sections:
            spans = [(line.strip(), "")]
            sections[-1]["lines"].append({"indent": indent - 4, "spans": spans, "wraps": True})
    return sections

"""``gpufence explain``: the page of a rule, or the reasons for a decision."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

import click

from policies.policy import Policy
from policies.registry import RULES, Rule
from policies.wording import did_you_mean
from webhook.documents.document import InputError
from webhook.tools.cli import explanation
from webhook.tools.cli.commands import EXIT_BUG, EXIT_INPUT
from webhook.tools.cli.manifests import no_objects_message, read_manifests
from webhook.tools.cli.options import PATH, Evaluation, evaluation_options
from webhook.tools.cli.report.content import page_of
from webhook.tools.cli.report.output import BOLD, DIM, PLAIN, Terminal, terminal_of
from webhook.wording import printable

_EXAMPLES = ("Before", "After", "Denied", "Use instead")
"""The sections of a page with which it begins."""
_FENCE = "```"
_CODE_INDENT = "    "


@click.command(
    epilog="""\b
Exit status:
  0   explained, whatever the verdict is
  2   invalid input or usage; all other manifests are explained
  70  gpufence has failed at an object, which is a bug; all others are explained

\b
Examples:
  gpufence explain                                  list the rules
  gpufence explain pool-trespass                    the page of a rule
  gpufence explain train.yaml                       the decision on a manifest
  kubectl get nodes -o json | gpufence explain --nodes - train.yaml
  kubectl get pod train -o yaml | gpufence explain --cluster -
""",
)
@click.argument(
    "subject",
    required=False,
    type=PATH,
    metavar="[RULE|FILE]",
)
@evaluation_options
def explain(subject: str | None, evaluation: Evaluation) -> int:
    """Explain a rule, or the decision on a manifest.

    RULE is the name of a rule. FILE is a file, a directory, or - for standard input. For each Pod
    and pod template, gpufence explains why it is a GPU Pod or not, what each mutation adds, where
    the scheduler can place it, and what the checks find. --nodes and --cluster add the nodes of a
    cluster. Without an argument, gpufence lists the rules.
    """
    _, policy = evaluation.load_policy()
    namespace = evaluation.request.namespace
    if subject is None:
        _write_list(policy, namespace)
        return 0
    for rule in RULES:
        if rule.id == subject:
            if os.path.lexists(subject):
                note = f"To explain the file of that name, run gpufence explain ./{subject}."
                click.echo(f"Note: this is the rule. {note}", err=True)
            page = rule_markdown(rule, policy, namespace)
            sys.stdout.writelines(f"{line}\n" for line in _manual(page, terminal_of(sys.stdout)))
            return 0
    if subject != "-" and not os.path.lexists(subject):
        raise InputError([_unknown(subject)])
    results = evaluation.results(policy, read_manifests([subject]))
    if not results:
        raise InputError([no_objects_message([subject])])
    sys.stdout.writelines(explanation.report(terminal_of(sys.stdout), results, policy))
    if any(result.judgement.bugs for result in results):
        return EXIT_BUG
    return EXIT_INPUT if any(result.error for result in results) else 0


def _unknown(name: str) -> str:
    """Return the message about a name that is neither a rule nor a file."""
    rules = [rule.id for rule in RULES]
    containing = [rule for rule in rules if name and name.lower() in rule]
    near = did_you_mean(name, rules) or (containing and f"Did you mean {' or '.join(containing)}?")
    cure = near or "To list the rules, run gpufence explain. To explain a file, check its path."
    return f"{printable(name)} is neither a rule nor a file. {cure}"


def _write_list(policy: Policy, namespace: str) -> None:
    """Write a line for each rule: its name, its action, and the title of its page."""
    actions = policy.actions_in(namespace, None)
    rows = [(rule.id, actions[rule.id], rule.title) for rule in RULES]
    width, terminal = max(len(rule) for rule, _, _ in rows), terminal_of(sys.stdout)
    sys.stdout.writelines(
        terminal.row((f"{rule:{width}}", BOLD), (f"{action:7}", DIM), (title, PLAIN))
        for rule, action, title in rows
    )


def rule_markdown(rule: Rule, policy: Policy, namespace: str) -> str:
    """Return a rule's page as Markdown: name, text with its example first, and action."""
    subject, *sections = page_of(rule).strip().split("\n## ")
    sections.sort(key=lambda section: not section.startswith(_EXAMPLES))
    page = "\n## ".join([subject, *(section.rstrip() + "\n" for section in sections)])
    what = "mutation: it adds fields to Pods" if rule.is_mutation else "check: it returns findings"
    action = policy.actions_in(namespace, None)[rule.id]
    here = "" if action == rule.default else f" The policy sets it to `{action}`."
    return (
        f"# {rule.id}\n\n{page}\n## Action\n\n"
        f"The rule is a {what}. Its default action is `{rule.default}`.{here}\n"
    )


def _manual(page: str, terminal: Terminal) -> Iterator[str]:
    """Yield the lines of a page as in a manual: headings without marks, indented code."""
    in_code = False
    for line in page.splitlines():
        if line.startswith(_FENCE):
            in_code = not in_code
        elif in_code:
            yield terminal.paint(f"{_CODE_INDENT}{line}".rstrip(), DIM)
        elif heading := re.fullmatch(r"#+ (.*)", line):
            title = heading[1].upper() if line.startswith("## ") else heading[1]
            yield terminal.paint(title, BOLD)
        else:
            yield line

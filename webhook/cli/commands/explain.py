"""``gpufence explain``: the page of a rule, or the reasons for a decision."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import click

from webhook.cli.errors import EXIT_INPUT
from webhook.cli.options.cluster_context import cluster_context_options
from webhook.cli.options.common import namespace_option, policy_option
from webhook.cli.options.outputs import color_option
from webhook.documents.errors import InputError

# Heavy imports are local: help and completion do not need them.
if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from webhook.cli.options.cluster_context import ClusterContext
    from webhook.cli.policy.policy_choice import PolicyChoice
    from webhook.cli.report.terminal import Color


def _complete_subjects(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a rule or a file.

    The file comes first: bash's script drops the words before it.
    """
    from click.shell_completion import CompletionItem

    from policies.registry import RULES

    rules = [CompletionItem(rule.id) for rule in RULES if rule.id.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *rules]


@click.command(
    epilog="""\b
Exit status:
  0  explained, whatever the verdict is
  2  invalid input or usage; all other manifests are explained

\b
Examples:
  gpufence explain                                  list the rules
  gpufence explain pool-trespass                    the page of a rule
  gpufence explain --output markdown pool-trespass  the page as Markdown
  gpufence explain train.yaml                       the decision on a manifest
  kubectl get nodes -o json | gpufence explain --nodes - train.yaml
  kubectl get pod train -o yaml | gpufence explain --cluster -
""",
)
@click.argument("subject", required=False, metavar="[RULE|FILE]", shell_complete=_complete_subjects)
@policy_option
@namespace_option
@cluster_context_options
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "markdown"]),
    default="text",
    show_default=True,
    help="Format of rule pages.",
)
@color_option
def explain(
    subject: str | None,
    policy_choice: PolicyChoice,
    namespace: str,
    cluster_context: ClusterContext,
    output: Literal["text", "markdown"],
    color: Color,
) -> int:
    """Explain a rule, or the decision on a manifest.

    RULE is the name of a rule. FILE is a file, a directory, or - for standard input. For each Pod
    and pod template, gpufence explains why it is a GPU Pod or not, what each mutation adds, where
    the scheduler can place it, and what the checks find. --nodes and --cluster add the nodes of a
    cluster. Without an argument, gpufence lists the rules.
    """
    from policies.registry import RULES
    from webhook.cli.explanation import rule_page as explain_page
    from webhook.cli.policy.policy_file import compiled_policy

    policy_choice.announce()
    policy = compiled_policy(policy_choice.path)
    if subject is None:
        explain_page.write_list(RULES, policy, namespace, output, color)
        return 0
    for rule in RULES:
        if rule.id == subject:
            if os.path.lexists(subject):
                note = f"To explain the file of that name, run gpufence explain ./{subject}."
                click.echo(f"Note: this is the rule. {note}", err=True)
            explain_page.write(rule, policy, namespace, output, color)
            return 0
    if output == "markdown":
        raise click.UsageError("--output markdown is for rules, not for manifests.")
    if subject != "-" and not os.path.lexists(subject):
        raise InputError([explain_page.unknown(subject, [rule.id for rule in RULES])])

    from policies.facts import Request
    from webhook.cli.explanation import text as explanation
    from webhook.cli.explanation.pod_trace import explanations
    from webhook.cli.manifests.evaluate import no_objects_message, read_manifests
    from webhook.cli.report import terminal

    with cluster_context.facts(policy) as complete:
        manifests = read_manifests([subject])
        request = Request(namespace=namespace, today=datetime.now(UTC).date())
        if not manifests:
            raise InputError([no_objects_message([subject])])
        explained = list(explanations(manifests, policy, request, complete))
    terminal.write(explanation.report(explained), sys.stdout, color)
    return EXIT_INPUT if any(explanation.result.error for explanation in explained) else 0

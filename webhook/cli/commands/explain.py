"""``gpufence explain``: a rule's page, or what happens to the Pods of a file and why."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import click

from webhook.cli.errors import EXIT_INPUT, InputError
from webhook.cli.options.cluster_context import cluster_context_options
from webhook.cli.options.common import namespace_option, policy_option
from webhook.cli.options.outputs import color_option

# What explaining needs is imported where it is used: help and completion need none of it.
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
  0  what was asked for is explained, be it allowed or refused
  2  the input or the usage is at fault; the rest is explained all the same

\b
Examples:
  gpufence explain                                  every rule in a line
  gpufence explain pool-trespass                    the page of a rule
  gpufence explain --output markdown pool-trespass  the same, for a wiki
  gpufence explain train.yaml                       what happens to a Pod, and why
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
    help="Of rules: text, or their pages as they are written.",
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
    """Explain a rule, or what happens to the Pods of a file and why.

    RULE is the name of a rule. FILE is a file, a folder or - for the standard input; of each Pod
    and pod template it is said why it is a GPU Pod or why not, which mutation adds what, what the
    checks find, and what the scheduler will be able to do: in general, or on the nodes that --nodes
    or --cluster make known. Without either, the rules are listed.
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
                note = f"there is also a file of that name: gpufence explain ./{subject}"
                click.echo(f"Note: this is the rule; {note}", err=True)
            explain_page.write(rule, policy, namespace, output, color)
            return 0
    if output == "markdown":
        raise click.UsageError("--output markdown is for rules: of files there is only text")
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
    return EXIT_INPUT if any(each.result.error for each in explained) else 0

"""``gpufence check``: verdicts, findings and changes, over files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from webhook.cli.errors import EXIT_FOUND, EXIT_INPUT, InputError
from webhook.cli.options import namespace_option, paths_argument, policy_option
from webhook.cli.surroundings import surroundings_options

# What checking needs is imported where it is used: help and completion need none of it.
if TYPE_CHECKING:
    from webhook.cli.evaluate import Result, Verdict
    from webhook.cli.report.terminal import Color
    from webhook.cli.surroundings import Surroundings


@click.command(
    epilog="""\b
Exit status:
  0  nothing that the policy enforces was found
  1  something was
  2  the input or the usage is at fault; the rest was checked all the same

\b
Examples:
  gpufence check train.yaml
  gpufence check --policy policy.yaml --namespace ml deploy/
  kustomize build . | gpufence check -
  kubectl get nodes -o json | gpufence check --nodes - deploy/
  helm template chart/ | gpufence check --output json - > report.json
""",
)
@paths_argument
@policy_option
@namespace_option
@surroundings_options
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A report for people, or one for programs (a CheckReport).",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour in the text; auto means on a terminal, unless NO_COLOR is set.",
)
def check(
    paths: tuple[str, ...],
    policy_path: str | None,
    namespace: str,
    surroundings: Surroundings,
    output: str,
    color: Color,
) -> int:
    """Check manifests: what the webhook would refuse, and what it would change.

    PATH is a file, a folder (every .yaml, .yml and .json below it, hidden ones aside) or - for the
    standard input. YAML of any number of documents, JSON, JSON lines and Lists are read.
    ResourceClaims, their templates, DeviceClasses and Namespaces among the manifests are taken into
    account for the Pods beside them; the nodes of a cluster with --nodes, and the whole of it with
    --cluster.
    """
    from webhook.cli.evaluate import evaluate, nothing_to_do, read_manifests
    from webhook.cli.policy_file import load_policy

    policy = load_policy(policy_path).compile()
    verdicts: set[Verdict] = set()
    manifests, today = read_manifests(paths), datetime.now(UTC).date()
    with surroundings.known(policy) as complete:
        results = _observed(evaluate(manifests, policy, namespace, today, complete), verdicts)
        if output == "json":
            _write_json(results)
        else:
            _write_text(results, color)
    if not verdicts:
        raise InputError([nothing_to_do(paths)])
    if "invalid" in verdicts:
        return EXIT_INPUT
    return EXIT_FOUND if "denied" in verdicts else 0


def _observed(results: Iterable[Result], verdicts: set[Verdict]) -> Iterator[Result]:
    for result in results:
        verdicts.add(result.verdict)
        yield result


def _write_text(results: Iterable[Result], color: Color) -> None:
    from webhook.cli.report import terminal, text

    terminal.write(text.report(results), sys.stdout, color)


def _write_json(results: Iterable[Result]) -> None:
    """Write the report, and what is broken to standard error as well, for people."""
    from webhook.cli.report import json
    from webhook.cli.report.lines import clean
    from webhook.cli.report.sentence import sentence

    kept = list(results)
    sys.stdout.buffer.write(json.report(kept))
    for result in kept:
        if result.error is not None:
            line = sentence(result.manifest.document, result.error)
            click.echo(f"Error: {clean(line)}", err=True)

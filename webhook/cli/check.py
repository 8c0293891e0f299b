"""``gpufence check``: verdicts, findings and changes, over files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
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

\b
To enforce before everything is cleaned up:
  gpufence check --policy policy.yaml --generate-exceptions exceptions.yaml deploy/
  (put its list into policy.yaml under exceptions:, with a reason for each)
  gpufence check --policy policy.yaml deploy/
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
@click.option(
    "--generate-exceptions",
    "exceptions_path",
    metavar="FILE|-",
    help="Write exceptions for what is found today to a new file, or for - to standard output "
    "instead of the report: a list to put into the policy, which --policy then names. What the "
    "policy excepts already is left out. The status is 0 where they are for all that is found.",
)
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="The day from which the exceptions no longer count: 2026-12-31; 90 days from today by "
    "default.",
)
def check(
    paths: tuple[str, ...],
    policy_path: str | None,
    namespace: str,
    surroundings: Surroundings,
    output: str,
    color: Color,
    exceptions_path: str | None,
    expires: datetime | None,
) -> int:
    """Check manifests: what the webhook would refuse, and what it would change.

    PATH is a file, a folder (every .yaml, .yml and .json below it, hidden ones aside) or - for the
    standard input. YAML of any number of documents, JSON, JSON lines and Lists are read.
    ResourceClaims, their templates, DeviceClasses and Namespaces among the manifests are taken into
    account for the Pods beside them; the nodes of a cluster with --nodes, and the whole of it with
    --cluster.
    """
    from webhook.cli.evaluate import evaluate, nothing_to_do, read_manifests
    from webhook.cli.policy_file import compiled_policy

    policy = compiled_policy(policy_path)
    verdicts: set[Verdict] = set()
    manifests, today = read_manifests(paths), datetime.now(UTC).date()
    until = _until(exceptions_path, expires, today)
    with surroundings.known(policy) as complete:
        results: Iterable[Result]
        results = _observed(evaluate(manifests, policy, namespace, today, complete), verdicts)
        if until is not None:
            results = list(results)
        if exceptions_path == "-":
            _tell_errors(results)
        elif output == "json":
            _write_json(results)
        else:
            _write_text(results, color)
    if not verdicts:
        raise InputError([nothing_to_do(paths)])
    if exceptions_path is not None and until is not None:
        from webhook.cli.exceptions import write_exceptions

        write_exceptions(exceptions_path, results, today, until)
        verdicts.discard("denied")
    if "invalid" in verdicts:
        return EXIT_INPUT
    return EXIT_FOUND if "denied" in verdicts else 0


def _until(path: str | None, expires: datetime | None, today: date) -> date | None:
    """Return the day from which generated exceptions no longer count, where any are asked for."""
    if path is None:
        if expires is not None:
            raise click.UsageError("--expires says until when: add --generate-exceptions FILE")
        return None
    if expires is not None:
        if expires.date() <= today:
            raise click.UsageError(f"--expires {expires.date()}: give a day after today, {today}")
        return expires.date()
    from webhook.cli.exceptions import default_expiry

    return default_expiry(today)


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

    kept = list(results)
    sys.stdout.buffer.write(json.report(kept))
    _tell_errors(kept)


def _tell_errors(results: Iterable[Result]) -> None:
    """Write what is broken to standard error, where no text report says it."""
    from webhook.cli.report.lines import clean
    from webhook.cli.report.sentence import sentence

    for result in results:
        if result.error is not None:
            line = sentence(result.manifest.document, result.error)
            click.echo(f"Error: {clean(line)}", err=True)

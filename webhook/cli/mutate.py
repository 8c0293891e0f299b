"""``gpufence mutate``: manifests as the cluster will get them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.errors import EXIT_FOUND, InputError
from webhook.cli.options import namespace_option, paths_argument, policy_option
from webhook.cli.surroundings import surroundings_options

# What mutating needs is imported where it is used: help and completion need none of it.
if TYPE_CHECKING:
    from webhook.cli.evaluate import Result
    from webhook.cli.manifests.documents import Document
    from webhook.cli.manifests.objects import Path
    from webhook.cli.surroundings import Surroundings


@click.command(
    epilog="""\b
Exit status:
  0  nothing that the policy enforces was found
  1  something was: standard error says what, and the manifests are printed all the same
  2  the input or the usage is at fault: nothing is printed

\b
Examples:
  gpufence mutate train.yaml
  kustomize build . | gpufence mutate - | kubectl apply -f -
  gpufence mutate --output json train.yaml | jq .spec.tolerations
""",
)
@paths_argument
@policy_option
@namespace_option
@surroundings_options
@click.option(
    "--output",
    "-o",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="YAML documents, or JSON values one after the other.",
)
def mutate(
    paths: tuple[str, ...],
    policy_path: str | None,
    namespace: str,
    surroundings: Surroundings,
    output: str,
) -> int:
    """Print manifests with what the webhook would add to their Pods.

    PATH is a file, a folder (every .yaml, .yml and .json below it, hidden ones aside) or - for the
    standard input. Documents come out in the order in which they go in, Lists as Lists, unchanged
    ones too. Keys keep their order. Comments are not kept, and anchors are written out.
    """
    from webhook.cli.evaluate import evaluate, nothing_to_do, read_manifests
    from webhook.cli.manifests.yaml_writer import to_yaml
    from webhook.cli.policy_file import compiled_policy
    from webhook.cli.report.lines import clean
    from webhook.cli.report.sentence import sentence

    policy = compiled_policy(policy_path)
    manifests, today = read_manifests(paths), datetime.now(UTC).date()
    with surroundings.known(policy) as complete:
        results = list(evaluate(manifests, policy, namespace, today, complete))
    if broken := [result for result in results if result.error is not None]:
        raise InputError(
            clean(sentence(result.manifest.document, error))
            for result in broken
            if (error := result.error) is not None
        )
    if not results:
        raise InputError([nothing_to_do(paths)])
    documents = _mutated(results)
    text = _to_json(documents) if output == "json" else "---\n".join(map(to_yaml, documents))
    sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()
    return _report_denied(results)


def _mutated(results: Iterable[Result]) -> Iterator[Any]:
    """Yield each document with its objects as they become."""
    from webhook.cli.manifests.pointer import replaced

    by_document: dict[Document, dict[Path, Any]] = {}
    for result in results:
        replacements = by_document.setdefault(result.manifest.document, {})
        if result.decision is not None and result.decision.mutated is not result.decision.original:
            mutated = dict(result.decision.mutated)
            for key in result.manifest.added:
                del mutated[key]
            replacements[result.manifest.path] = mutated
    for document, replacements in by_document.items():
        yield replaced(document.value, replacements)


def _to_json(documents: Iterable[Any]) -> str:
    import json

    return "".join(f"{json.dumps(d, indent=2, ensure_ascii=False)}\n" for d in documents)


def _report_denied(results: Iterable[Result]) -> int:
    from webhook.cli.report.lines import clean

    status = 0
    for result in results:
        findings = result.decision.findings if result.decision else ()
        for finding in findings:
            if finding.action == "enforce":
                status = EXIT_FOUND
                what = f"{result.kind} {result.name}: {finding.rule}: {finding.message}."
                place = f"{result.manifest.document.path}:{result.manifest.line}"
                click.echo(f"Refused: {clean(f'{place}: {what}')}", err=True)
    return status

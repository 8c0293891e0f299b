"""``gpufence mutate``: manifests with the mutations of the webhook."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from policies.decision import patched
from policies.kubernetes.editor import PatchOperation
from webhook.documents.document import (
    Document,
    DocumentError,
    InputError,
    raise_errors,
    sentence,
)
from webhook.tools.cli.commands import EXIT_BUG, EXIT_FOUND
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.manifests import no_objects_message, read_manifests
from webhook.tools.cli.options import PATH, Evaluation, evaluation_options, exclude_option
from webhook.tools.cli.yaml_writer import to_yaml
from webhook.wording import printable


@click.command(
    epilog="""\b
Exit status:
  0   no enforced findings
  1   enforced findings, reported on standard error; all manifests are printed, also the denied ones
  2   invalid input or usage; nothing is printed
  70  gpufence has failed at an object, which is a bug; nothing is printed

\b
Examples:
  gpufence mutate train.yaml

\b
To apply the manifests only if none is denied (a pipe into kubectl does not wait for that):
  kustomize build . | gpufence mutate - > mutated.yaml && kubectl apply -f mutated.yaml
""",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATH)
@exclude_option
@evaluation_options
def mutate(paths: tuple[str, ...], exclude: tuple[str, ...], evaluation: Evaluation) -> int:
    """Print manifests with the mutations that the webhook makes.

    PATH is a file, a directory (every .yaml, .yml and .json below it, without hidden files), or -
    for standard input. All documents are printed in their order, unchanged ones as well. Keys keep
    their order. Comments are dropped, and anchors are expanded.
    """
    _, policy = evaluation.load_policy()
    results = evaluation.results(policy, read_manifests(paths, exclude))
    faults = [(result.manifest.document, _fault(result)) for result in results]
    if any(result.judgement.bugs for result in results):
        for document, fault in faults:
            if fault is not None:
                click.echo(f"Error: {printable(sentence(document, fault))}", err=True)
        return EXIT_BUG
    raise_errors(faults)
    if not results:
        raise InputError([no_objects_message(paths)])
    sys.stdout.buffer.write("---\n".join(map(to_yaml, mutated_documents(results))).encode())
    sys.stdout.flush()
    return report_denied(results)


def _fault(result: Result) -> DocumentError | None:
    """Return why a result cannot be written: applying the output would leave something out."""
    return result.error or result.duplicate or (DocumentError(result.note) if result.note else None)


def mutated_documents(results: Iterable[Result]) -> Iterator[Any]:
    """Yield each document with its objects mutated."""
    operations: dict[Document, list[PatchOperation]] = {}
    for result in results:
        operations.setdefault(result.manifest.document, []).extend(result.operations)
    for document, of_document in operations.items():
        yield patched(document.value, of_document)


def report_denied(results: Iterable[Result]) -> int:
    """Write the enforced findings to standard error; return the exit status."""
    status = 0
    for result in results:
        for finding in result.findings:
            if finding.action == "enforce":
                status = EXIT_FOUND
                what = f"{result.title}: {finding.rule}: {finding.message}."
                place = f"{result.manifest.document.path}:{result.manifest.line}"
                click.echo(f"Denied: {printable(f'{place}: {what}')}", err=True)
    return status

"""Documents with their objects mutated, and the objects that are denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from webhook.cli.errors import EXIT_FOUND
from webhook.cli.manifests.evaluate import Result
from webhook.documents.documents import Document
from webhook.documents.fields import replaced
from webhook.documents.objects import Path
from webhook.wording import printable


def mutated_documents(results: Iterable[Result]) -> Iterator[Any]:
    """Yield each document with its objects mutated."""
    by_document: dict[Document, dict[Path, Any]] = {}
    for result in results:
        replacements = by_document.setdefault(result.manifest.document, {})
        if result.decision is not None and result.decision.operations:
            mutated = dict(result.decision.mutated)
            for key in result.manifest.added:
                del mutated[key]
            replacements[result.manifest.path] = mutated
    for document, replacements in by_document.items():
        yield replaced(document.value, replacements)


def report_denied(results: Iterable[Result]) -> int:
    """Write the enforced findings to standard error; return the exit status."""
    status = 0
    for result in results:
        findings = result.decision.findings if result.decision else ()
        for finding in findings:
            if finding.action == "enforce":
                status = EXIT_FOUND
                what = f"{result.title}: {finding.rule}: {finding.message}."
                place = f"{result.manifest.document.path}:{result.manifest.line}"
                click.echo(f"Denied: {printable(f'{place}: {what}')}", err=True)
    return status

"""Documents with their objects mutated, on standard output, and the objects that are denied."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from policies.kubernetes.editor import PatchOperation, patched
from webhook.cli.errors import EXIT_FOUND
from webhook.cli.manifests.evaluate import Result
from webhook.cli.manifests.yaml_writer import to_yaml
from webhook.documents.documents import Document
from webhook.wording import printable, printable_json


def mutated_documents(results: Iterable[Result]) -> Iterator[Any]:
    """Yield each document with its objects mutated."""
    operations: dict[Document, list[PatchOperation]] = {}
    for result in results:
        operations.setdefault(result.manifest.document, []).extend(result.operations)
    for document, of_document in operations.items():
        yield patched(document.value, tuple(of_document))


def write_documents(documents: Iterable[Any], *, as_json: bool) -> None:
    """Write documents to standard output: as YAML, or as a sequence of JSON values."""
    if as_json:
        texts = (json.dumps(document, indent=2, ensure_ascii=False) for document in documents)
        text = "".join(f"{printable_json(text)}\n" for text in texts)
    else:
        text = "---\n".join(map(to_yaml, documents))
    sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()


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

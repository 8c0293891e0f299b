"""Suites of test cases for a policy: files of kind FenceTest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from policies.document.fence_test import KIND, SuiteSpec, parse_suite
from policies.document.model import PolicyError
from webhook.cli.manifests.files import is_directory, is_special_file
from webhook.cli.policy.policy_file import located
from webhook.documents.documents import Document, load_documents
from webhook.documents.errors import InputError
from webhook.documents.fields import locate

NAMES = ("gpufence-test.yaml", "gpufence-test.yml")
"""The names of suite files. Names that end in one of these after a dot count as well."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite, and the document that it is read from."""

    document: Document
    spec: SuiteSpec

    @property
    def directory(self) -> Path:
        return Path(self.document.path).parent

    def line(self, case: int) -> int:
        """Return the line on which a case starts."""
        position = locate(self.document, ("cases", case), "")
        return position.line if position else self.document.line


def find(paths: Iterable[str]) -> list[str]:
    """Return the suite files that ``paths`` name: files, and directories with all below them.

    Raises:
        InputError: a directory holds no suites.
    """
    files: list[str] = []
    problems = []
    for path in paths:
        if is_directory(path):
            below = sorted(_below(path))
            files += below
            if not below:
                names = f"{NAMES[0]} or *.{NAMES[0]}"
                problems.append(f"{path}: no suites found. Name suite files {names}.")
        else:
            files.append(path)
    if problems:
        raise InputError(problems)
    return list(dict.fromkeys(files))


def read(path: str) -> list[Suite]:
    """Return the suites of a file: each document is one.

    Raises:
        InputError: with a line for each problem.
    """
    documents = load_documents(path)
    if not documents:
        raise InputError([f"{path}: is empty. Write a document of kind {KIND}, or remove it."])
    return [Suite(document, _spec(document)) for document in documents]


def _spec(document: Document) -> SuiteSpec:
    try:
        return parse_suite(document.value)
    except PolicyError as error:
        raise InputError(located(document, problem) for problem in error.problems) from error


def _below(directory: str) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in files:
            path = str(Path(parent, name))
            is_named = name in NAMES or name.endswith(tuple(f".{suffix}" for suffix in NAMES))
            if is_named and not is_special_file(path):
                yield path

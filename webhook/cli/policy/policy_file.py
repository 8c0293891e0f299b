"""Policies from files, and the default policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.policy import Policy
from webhook.documents.documents import Document, sentence, unreadable, valid_documents
from webhook.documents.errors import InputError, ManifestError
from webhook.documents.fields import locate
from webhook.documents.files import display_name, read_text
from webhook.wording import printable

# pydantic takes long to import, and the default policy does not need it.
if TYPE_CHECKING:
    from policies.document.model import FencePolicy

DEFAULT_NAME = "default"
"""The name of the default policy."""


def policy_name(path: str | None) -> str:
    """Return the policy's name in messages, logs and metrics."""
    return DEFAULT_NAME if path is None else display_name(path)


def policy_text(path: str | None) -> str:
    """Return the text of a policy file, or without a path of the default policy.

    Raises:
        InputError: the file cannot be read.
    """
    if path is None:
        from policies.document.model import default_policy_text

        return default_policy_text()
    try:
        return read_text(path)
    except ManifestError as error:
        problem = sentence(unreadable(policy_name(path), error), error)
        raise InputError([printable(problem)]) from error


def compiled_policy(path: str | None) -> Policy:
    """Return the compiled policy of a file, or without a path the default policy.

    Raises:
        InputError: the file cannot be read or is not a valid policy; one line for each problem.
    """
    if path is None:
        from policies.document.shipped import shipped_policy

        return shipped_policy()
    return load_policy(path).compile()


def load_policy(path: str | None) -> FencePolicy:
    """Read and validate a policy file, or without a path the default policy.

    Raises:
        InputError: the file cannot be read or is not a valid policy; one line for each problem.
    """
    return read_policy(policy_name(path), policy_text(path))


def read_policy(name: str, text: str) -> FencePolicy:
    """Validate the text of a policy; ``name`` is its name in error messages.

    Raises:
        InputError: the text is not a valid policy; one line for each problem.
    """
    from policies.document.model import PolicyError, parse_policy

    documents = valid_documents(name, text)
    if len(documents) != 1:
        problem = f"must hold one document of kind FencePolicy, but holds {len(documents)}"
        cure = "To start from the default policy, run gpufence policy show"
        raise InputError([f"{name}: {problem}. {cure}."])
    try:
        return parse_policy(documents[0].value)
    except PolicyError as error:
        raise InputError(located(documents[0], problem) for problem in error.problems) from error


def located(document: Document, problem: str) -> str:
    """Return a problem, which starts with a field path, with its place in the file."""
    position = locate(document, (), problem.partition(": ")[0])
    place = f"{document.path}:{position.line}" if position else document.path
    return f"{place}: {problem}."

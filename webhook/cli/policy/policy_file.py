"""The policy that a command goes by: a file's, or the one that ships with gpufence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.policy import Policy
from webhook.cli.errors import InputError
from webhook.cli.manifests.documents import Document, read_documents, unreadable
from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.files import display_name, read_text
from webhook.cli.manifests.locate import locate
from webhook.cli.manifests.sentence import sentence
from webhook.cli.wording import printable

# A policy document takes pydantic, and that time: who goes by the default policy needs neither.
if TYPE_CHECKING:
    from policies.document.model import FencePolicy

DEFAULT_NAME = "default"
"""What the policy that ships with gpufence is called."""


def policy_name(path: str | None) -> str:
    """Return what the policy is called in messages, logs and metrics."""
    return DEFAULT_NAME if path is None else display_name(path)


def policy_text(path: str | None) -> str:
    """Return the text of a policy file; without a path, of the default policy.

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
    """Return the policy of a file, ready for use; without a path, the default policy, at once.

    Raises:
        InputError: the file cannot be read, or is no valid policy: with a line for each problem.
    """
    if path is None:
        from policies.document.shipped import shipped_policy

        return shipped_policy()
    return load_policy(path).compile()


def load_policy(path: str | None) -> FencePolicy:
    """Read and validate a policy file; without a path, the default policy.

    Raises:
        InputError: the file cannot be read, or is no valid policy: with a line for each problem.
    """
    return read_policy(policy_name(path), policy_text(path))


def read_policy(name: str, text: str) -> FencePolicy:
    """Validate the text of a policy; ``name`` is what the problems call it.

    Raises:
        InputError: it is no valid policy: with a line for each problem.
    """
    from policies.document.model import PolicyError, parse_policy

    documents = list(read_documents(name, text))
    if broken := [(document, document.fault) for document in documents if document.fault]:
        raise InputError(sentence(document, error) for document, error in broken)
    if len(documents) != 1:
        problem = f"holds {len(documents)} documents, but a policy is one, of kind FencePolicy"
        cure = "gpufence policy show prints the default one to start from"
        raise InputError([f"{name}: {problem}. {cure}."])
    try:
        return parse_policy(documents[0].value)
    except PolicyError as error:
        raise InputError(located(documents[0], problem) for problem in error.problems) from error


def located(document: Document, problem: str) -> str:
    """Return a problem, which starts with the path of a field, with its place in the file."""
    position = locate(document, (), problem.partition(": ")[0])
    place = f"{document.path}:{position.line}" if position else document.path
    return f"{place}: {problem}."

"""Policies from files, and the default policy. All commands and replicas read policies here."""

from __future__ import annotations

from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from policies.shipped import shipped_policy
from webhook.documents.document import Document, InputError
from webhook.documents.files import display_name, read_text, valid_documents
from webhook.documents.objects import locate

DEFAULT_NAME = "default"
"""The name of the default policy."""

MAX_BYTES = 4 * 1024 * 1024
"""The largest policy file. Policies have kilobytes, and an object at most 1.5 MiB."""


def policy_name(path: str | None) -> str:
    """Return the policy's name in messages, logs and metrics."""
    return DEFAULT_NAME if path is None else display_name(path)


def load_policy(path: str | None) -> Policy:
    """Return the policy of a file, or without a path the default policy.

    Raises:
        InputError: the file cannot be read or is not a valid policy; one line for each problem.
    """
    if path is None:
        return shipped_policy()
    return read_policy(policy_name(path), read_policy_text(path))


def read_policy_text(path: str) -> str:
    """Return the text of a policy file.

    Raises:
        InputError: the file cannot be read, is too large, or is not text.
    """
    return read_text(path, MAX_BYTES)


def read_policy(name: str, text: str) -> Policy:
    """Return the policy in a text; ``name`` is its name in error messages.

    Raises:
        InputError: the text is not a valid policy; one line for each problem.
    """
    # pydantic takes long to import, and the default policy does not need it.
    from policies.document import PolicyError, parse_policy

    documents = valid_documents(name, text)
    if len(documents) != 1:
        problem = f"must hold one document of kind FencePolicy, but holds {len(documents)}"
        cure = "To start from the default policy, run gpufence policy show"
        raise InputError([f"{name}: {problem}. {cure}."])
    try:
        return parse_policy(documents[0].value)
    except PolicyError as error:
        raise InputError(located(documents[0], problem) for problem in error.problems) from error


def live_policy(name: str, obj: JSONObject) -> Policy:
    """Return the policy of a FencePolicy that was read from a cluster.

    Raises:
        InputError: it is invalid; one line for each problem.
    """
    from policies.document import PolicyError, parse_policy

    try:
        return parse_policy(obj)
    except PolicyError as error:
        raise InputError(f"FencePolicy {name}: {each}." for each in error.problems) from error


def located(document: Document, problem: str) -> str:
    """Return a problem, which starts with a field path, with its place in the file."""
    position = locate(document, (), problem.partition(": ")[0])
    place = f"{document.path}:{position.line}" if position else document.path
    return f"{place}: {problem}."

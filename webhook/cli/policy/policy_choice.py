"""Which policy a command uses: --policy, GPUFENCE_POLICY, .gpufence.yaml, or the default policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

from policies.suggestions import unknown
from webhook.documents.document import InputError
from webhook.documents.files import STDIN, display_name, load_documents
from webhook.documents.policy_files import MAX_BYTES, policy_name

VARIABLE = "GPUFENCE_POLICY"
PROJECT_FILE = ".gpufence.yaml"


class PolicyChoice(NamedTuple):
    """A policy file, or ``None`` for the default policy, and the setting that names it.

    ``setting`` is empty where the command line names the file.
    """

    path: str | None = None
    setting: str = ""

    @property
    def title(self) -> str:
        """The policy's name in reports: ``policy.yaml, from GPUFENCE_POLICY``."""
        name = policy_name(self.path)
        return f"{name}, from {self.setting}" if self.setting else name

    @property
    def is_explicit(self) -> bool:
        """Whether the command line names the policy."""
        return self.path is not None and not self.setting

    def announce(self) -> None:
        """Name the policy on standard error if the command line does not name it."""
        if self.setting:
            click.echo(f"Policy: {self.title}", err=True)


def choose_policy(path: str | None) -> PolicyChoice:
    """Return the policy to use; ``path`` is the value of --policy.

    Raises:
        InputError: .gpufence.yaml is invalid, or what the variable names does not exist.
    """
    if path is not None:
        return PolicyChoice(path)
    if named := os.environ.get(VARIABLE):
        if named != STDIN and not os.path.lexists(named):
            problem = f"{display_name(named)} does not exist. Check the path, or unset the variable"
            raise InputError([f"{VARIABLE}: {problem}."])
        return PolicyChoice(named, VARIABLE)
    if (project := _project_file()) is not None:
        return PolicyChoice(_policy_of(project), os.path.relpath(project))
    return PolicyChoice()


def _project_file() -> Path | None:
    """Return the nearest .gpufence.yaml, from the working directory upwards."""
    try:
        here = Path.cwd()
    except OSError:  # The working directory is gone.
        return None
    candidates = (directory / PROJECT_FILE for directory in (here, *here.parents))
    return next((path for path in candidates if path.is_file()), None)


def _policy_of(project: Path) -> str:
    """Return the path of the policy that a project file names.

    The file and what it names may be those of a pull request. They must not select other files of
    the machine that checks it.

    Raises:
        InputError: the project file is invalid, or names something else than a file below its
            directory.
    """
    name = os.path.relpath(project)
    documents = load_documents(name, MAX_BYTES)
    value = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or not isinstance(value.get("policy"), str):
        raise InputError([f"{name}: names no policy. Write one line: policy: PATH."])
    if others := value.keys() - {"policy"}:
        raise InputError([f"{name}: {min(others)}: {unknown('field', min(others), ['policy'])}."])
    path: str = value["policy"]
    if problem := _problem(project.parent, path):
        cure = "Name a file below the directory of this file, or use --policy"
        raise InputError([f"{name}: policy: {path} {problem}. {cure}."])
    return os.path.relpath(project.parent / path)


def _problem(directory: Path, path: str) -> str:
    """Return why a path does not stand for a regular file below a directory; empty if it does."""
    if Path(path).is_absolute():
        return "is an absolute path"
    try:
        real = Path(os.path.realpath(directory / path))
    except ValueError:  # A null character.
        return "is not the path of a file"
    if not real.is_relative_to(os.path.realpath(directory)):
        return "is outside of the directory"
    if not real.exists():
        return "does not exist"
    if not real.is_file():
        return "is not a regular file"
    return ""

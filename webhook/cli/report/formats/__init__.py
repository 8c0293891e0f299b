"""Report formats, one module each: ``check_json.py`` is the format json of ``gpufence check``.

A module is named COMMAND_FORMAT and has one function, ``report``. It takes the content of the
command's report (``webhook.cli.report.content``) and returns pieces of text. The format ``text``
returns lines instead, which a terminal colors and wraps. To add a format, add its module: the
option ``--output`` of the command then offers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, Protocol

TEXT = "text"

Command = Literal["check", "audit", "doctor", "suites"]


class Format(Protocol):
    """A module that makes reports of one format."""

    def report(self, content: Any, /) -> Iterable[Any]:
        """Return the report as pieces of text; ``text`` returns lines."""


def format_names(command: Command) -> list[str]:
    """Return the names of a command's formats, ``text`` first. No format is imported."""
    prefix = f"{command}_"
    names = [
        m.name.removeprefix(prefix) for m in iter_modules(__path__) if m.name.startswith(prefix)
    ]
    return sorted(names, key=lambda name: (name != TEXT, name))


def load_format(command: Command, name: str) -> Format:
    """Import a format by its name."""
    module: Format = import_module(f"{__name__}.{command}_{name}")
    return module

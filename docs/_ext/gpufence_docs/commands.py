"""The reference of the command line: every command with its options, exit status and examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from gpufence_docs.tables import code, plain, table
from webhook.tools.cli.main import cli


def markdown() -> str:
    """Return a section for each command, in the order in which the help lists them."""
    root = click.Context(cli, info_name="gpufence", **cli.context_settings)
    return "\n".join(_section(command, context) for command, context in _walk(cli, root))


def _walk(
    group: click.Group, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            raise LookupError(f"the command {name} is listed but cannot be loaded")
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _walk(command, inner)
        else:
            yield command, inner


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    if not command.help:
        raise ValueError(f"{context.command_path} has no help")
    parts = [
        f"## {context.command_path}\n",
        _fence([f"{context.command_path} {usage}"]),
        plain(inspect.cleandoc(command.help)) + "\n",
    ]
    options = [
        (code(names), text)
        for option in command.get_params(context)
        if (record := option.get_help_record(context))
        for names, text in [record]
        if text
    ]
    parts.append(table(("option", "description"), [(name, plain(text)) for name, text in options]))
    parts.extend(_epilog(command.epilog or ""))
    return "\n".join(parts)


def _epilog(text: str) -> Iterator[str]:
    r"""Yield the paragraphs after the options. Those that start with ``\b`` stay preformatted."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, *lines = paragraph.splitlines() or [""]
        if first != "\b":
            yield f"{paragraph}\n"
            continue
        heading, *code_lines = lines
        if heading.endswith(":") and not heading.startswith(" "):
            yield f"**{heading}**\n"
        else:
            code_lines = lines
        if code_lines:
            yield _fence(inspect.cleandoc("\n".join(["", *code_lines])).splitlines())


def _fence(lines: list[str]) -> str:
    return "\n".join(["```text", *lines, "```", ""])

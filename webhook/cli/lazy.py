"""Groups of commands: mistyped names get suggestions, and modules are imported when they run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_COMMANDS = "webhook.cli.commands"


class SuggestingGroup(click.Group):
    """A group that suggests commands for a mistyped name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        names = self.list_commands(ctx)
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            from policies.suggestions import did_you_mean

            near = did_you_mean(name, names) or f"Commands: {', '.join(names)}."
            ctx.fail(f"{name!r} is not a command of {ctx.command_path}. {near}")
        return super().resolve_command(ctx, args)


class Entry(NamedTuple):
    """A command: its place as ``module:attribute`` in ``_COMMANDS``, and its help in one line."""

    target: str
    summary: str


class LazyGroup(SuggestingGroup):
    """A group that knows its commands by name, and lists them without importing any."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(f"{_COMMANDS}.{module}"), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self._entries.items()
            if name.startswith(incomplete)
        ]
        # click.Group would import every command for its help.
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._entries.items()])

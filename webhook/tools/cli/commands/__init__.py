"""The commands, one module each, their groups, and their exit statuses.

Groups suggest names for mistyped ones, and import the module of a command when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from policies.wording import did_you_mean

EXIT_FOUND = 1
EXIT_INPUT = 2
EXIT_BUG = 70
"""EX_SOFTWARE of sysexits.h: neither a finding (1) nor invalid input (2)."""


class SuggestingGroup(click.Group):
    """A group that suggests commands for a mistyped name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        names = self.list_commands(ctx)
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            near = did_you_mean(name, names) or f"Commands: {', '.join(names)}."
            ctx.fail(f"{name!r} is not a command of {ctx.command_path}. {near}")
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group that lists its commands without importing any.

    A command has the name of its module in this package, and of its function there.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            return None
        module = import_module(f"{__name__}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))

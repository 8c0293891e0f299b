"""`--help` of every command: what it does, examples, and the statuses that it can end with."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from running import Run
from webhook.cli.main import cli


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


@pytest.mark.parametrize("words", list(commands(cli)), ids=" ".join)
def test_the_help_of_every_command_has_examples(gpufence: Run, words: tuple[str, ...]) -> None:
    done = gpufence(*words, "--help")
    assert done.status == 0
    _, _, examples = done.out.partition("\n  Examples:\n")
    assert f"gpufence {' '.join(words)}" in examples


def test_the_help_of_check_documents_the_exit_statuses(gpufence: Run) -> None:
    _, _, text = gpufence("check", "--help").out.partition("\n  Exit status:\n")
    statuses = [line.split()[0] for line in text.partition("\n\n")[0].splitlines()]
    assert statuses == ["0", "1", "2", "70", "130", "141"]


def test_the_help_lists_every_command_with_a_description(gpufence: Run) -> None:
    lines = gpufence("--help").out.partition("\nCommands:\n")[2].splitlines()
    listed = {line.split()[0]: line for line in lines if line.startswith("  ") and line[2] != " "}
    for words in commands(cli):
        assert len(listed[words[0]].split()) > 3

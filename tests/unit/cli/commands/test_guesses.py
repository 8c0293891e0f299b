"""Commands that other tools have, and that people try first."""

from __future__ import annotations

import re

import pytest

from running import Run
from webhook.tools.cli.commands import GUESSES


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guessed_command_names_one_that_exists(gpufence: Run, guess: str) -> None:
    ran = gpufence(guess)
    assert ran.status == 2
    _, found, advice = ran.err.partition(f"{guess!r} is not a command of gpufence. Write ")
    assert found
    commands = re.findall(r"gpufence (policy [a-z]+|[a-z]+)", advice)
    assert commands or "kubectl patch fencepolicy" in advice
    for command in commands:
        assert gpufence(*command.split(), "--help").status == 0

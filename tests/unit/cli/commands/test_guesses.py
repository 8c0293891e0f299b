"""Commands that other tools have, and that people try first."""

from __future__ import annotations

import pytest

from running import Run
from webhook.tools.cli.commands import GUESSES


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guessed_command_names_one_that_exists(gpufence: Run, guess: str) -> None:
    ran = gpufence(guess)
    assert ran.status == 2
    advice = f"{guess!r} is not a command of gpufence. Write gpufence "
    _, found, command = ran.err.partition(advice)
    assert found
    words = command.split()[: 2 if command.startswith("policy") else 1]
    assert gpufence(*[word.rstrip(".") for word in words], "--help").status == 0

"""Words for people: text that is safe to print."""

from __future__ import annotations

import pytest

from webhook.wording import printable


@pytest.mark.parametrize(
    "hidden",
    [
        *("\xad", "\u061c", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u202a"),
        *("\u202b", "\u202c", "\u202d", "\u202e", "\u2060", "\u2064", "\u2066", "\u2067", "\u2068"),
        *("\u2069", "\u206f", "\ufeff", "\ufffb", "\U000e0001", "\U000e007f"),
    ],
    ids=ascii,
)
def test_invisible_and_bidirectional_characters_are_shown_as_escapes(
    hidden: str,
) -> None:
    assert printable(f"web{hidden}") == "web" + ascii(hidden)[1:-1]

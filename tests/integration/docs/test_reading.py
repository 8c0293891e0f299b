"""What the pages' blocks are read as, on pages of the tests' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import blocks as reading
from docs.blocks import Block, Command, agrees, blocks

PAGE = """\
# A page

<!-- file: train.yaml; verdict: denied pool-trespass -->
```yaml
kind: Pod
```

<!-- exit: 1; cluster -->
```console
$ gpufence check \\
>   train.yaml
denied   Pod default/train
...
$ true
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reading, "PROJECT", tmp_path)
    return tmp_path / "page.md"


def test_a_block_has_a_position_a_language_and_notes(page: Path) -> None:
    page.write_text(PAGE)
    manifest, console = blocks("page.md")
    assert manifest == Block(
        "page.md",
        4,
        "yaml",
        "kind: Pod\n",
        {"file": "train.yaml", "verdict": "denied pool-trespass"},
    )
    assert (console.place, console.notes) == ("page.md:9", {"exit": "1", "cluster": ""})


def test_a_command_has_its_continuation_lines_and_shown_output(page: Path) -> None:
    page.write_text(PAGE)
    _, console = blocks("page.md")
    assert list(console.commands()) == [
        Command("gpufence check \\\n  train.yaml", ("denied   Pod default/train", "...")),
        Command("true", ()),
    ]


def test_an_unknown_note_is_rejected(page: Path) -> None:
    page.write_text("<!-- verdcit: denied -->\n```yaml\nkind: Pod\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:2: unknown notes: verdcit"):
        blocks("page.md")


def test_shown_lines_match_the_output() -> None:
    shown = ("a|b|c", "...", "a|...", "...|c", "a|...|c", "a|b...|c")
    assert not [each for each in shown if not agrees(tuple(each.split("|")), "a\nb  \nc\n")]


def test_shown_lines_differ_from_the_output() -> None:
    shown = ("a|c", "a|b", "...|b", "b|...", "a|c...|c", "a.|...")
    assert not [each for each in shown if agrees(tuple(each.split("|")), "a\nb  \nc\n")]

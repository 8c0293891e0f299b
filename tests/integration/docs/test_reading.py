"""What the pages' blocks are read as, on a page of the tests' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import blocks as reading
from docs.blocks import Block, Command, agrees, blocks

PAGE = """\
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


def test_a_block_has_a_position_notes_and_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PROJECT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    manifest, console = blocks("page.md")
    notes = {"file": "train.yaml", "verdict": "denied pool-trespass"}
    assert manifest == Block("page.md", 2, "yaml", "kind: Pod\n", notes)
    assert (console.place, console.notes) == ("page.md:7", {"exit": "1", "cluster": ""})
    assert list(console.commands()) == [
        Command("gpufence check \\\n  train.yaml", ("denied   Pod default/train", "...")),
        Command("true", ()),
    ]
    (tmp_path / "page.md").write_text(PAGE.replace("verdict", "verdcit"))
    with pytest.raises(ValueError, match=r"page\.md:2: unknown notes: verdcit"):
        blocks("page.md")


def test_shown_lines_match_the_output_or_differ_from_it() -> None:
    def matching(shown: str) -> list[str]:
        return [each for each in shown.split() if agrees(tuple(each.split("|")), "a\nb  \nc\n")]

    same, other = "a|b|c ... a|... ...|c a|...|c a|b...|c", "a|c a|b ...|b b|... a|c...|c a.|..."
    assert (matching(same), matching(other)) == (same.split(), [])

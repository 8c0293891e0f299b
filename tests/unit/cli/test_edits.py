"""What `gpufence check --fix` says of the edits that it makes; the cases have the edits."""

from __future__ import annotations

from webhook.tools.cli.edits import Edit


def test_a_fix_says_what_it_changes() -> None:
    assert str(Edit("remove", "spec.tolerations[0]")) == "remove spec.tolerations[0]"
    assert str(Edit("rename", "a", "b")) == "rename a to b"
    assert str(Edit("append", "a", {"b": 1})) == 'add {"b": 1} to a'
    assert str(Edit("set", "a", 1)) == "set a to 1"

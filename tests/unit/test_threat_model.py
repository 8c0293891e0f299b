"""The threat model names its proofs: each of them exists."""

from __future__ import annotations

import re

from paths import PROJECT

PAGE = (PROJECT / "docs" / "concepts" / "threat-model.md").read_text()


def test_every_proof_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = {
        name
        for path in (PROJECT / "tests").rglob("test_*.py")
        for name in re.findall(r"(?m)^\s*(?:async )?def (test_\w+)", path.read_text())
    }
    assert len(named) > 30
    assert named - there == set()


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`(tests/[\w./-]+)`", PAGE))
    assert len(named) > 6
    assert {path for path in named if not (PROJECT / path).exists()} == set()


def attempts() -> list[list[str]]:
    """Return the rows of what may be tried, by their cells."""
    _, *sections = PAGE.split("\n## ")
    found = []
    for section in sections:
        if section.startswith(("What a tenant", "What a client", "Pull requests", "Commands in")):
            header, rule, *rows = [line for line in section.splitlines() if line.startswith("|")]
            assert cells(header) == ["attempt", "answer", "proof"]
            assert set(rule) <= set("|- ")
            found += [cells(row) for row in rows]
    return found


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


def test_every_row_of_an_attempt_has_a_proof() -> None:
    rows = attempts()
    assert len(rows) > 25
    assert [row for row in rows if len(row) != 3] == []
    proof = re.compile(r"`test_\w+`|`tests/[\w./-]+`|\]\([\w./#-]*certificates\.md[\w#-]*\)")
    assert [row[0] for row in rows if not proof.search(row[2])] == []


def test_every_limitation_that_a_test_can_show_names_it() -> None:
    [section] = [each for each in PAGE.split("\n## ") if each.startswith("What is not defended")]
    limitations = re.findall(r"^- \*\*(.+?)\*\*(.*?)(?=^- |\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(limitations) > 12
    without = [name for name, text in limitations if not re.search("`test_|`tests/", text)]
    # A race of milliseconds, software of others, and hardware.
    expected = [["A", "claim"], ["Vulnerable", "software"], ["Side", "channels"]]
    assert [name.split()[0:2] for name in without] == expected

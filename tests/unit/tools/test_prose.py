"""The prose check reads what a person reads, and nothing else."""

from __future__ import annotations

import pytest

import prose

WORDS = prose.vocabulary([{"avoid": "folders?|come about", "use": "directory"}])
PYTHON = '''\
"""A folder in a docstring."""
# A folder in a comment
# that has come
# about over lines.
name = "folder"
message = f"The folder {name} is empty: ``folder``."
'''


def test_prose_is_found_by_the_kind_of_file(subtests: pytest.Subtests) -> None:
    for name, text, lines in (
        ("docs/page.md", "A\nfolder.\n\n`folder` [x](folder.md)\n\n```sh\nfolder\n```\n", [2]),
        ("docs/page.md", "```sh\nls\n```\n\nA `x` is a folder,\nand `folder` is.\n", [5]),
        ("docs/page.md", "It has come\n   about.\n\nIt has come\n\nabout.\n", [1]),
        ("webhook/x.py", PYTHON, [2, 3, 1, 6]),
        ("tests/x.py", PYTHON, [2, 3, 1]),
        ("deploy/values.yaml", "folder: a folder # The folder\n# Folders\n", [1, 2]),
        ("action.yml", "a:\n  description: >-\n    The\n    folder.\n  name: folder\n", [4]),
        ("Makefile", "x: folder  ## list the folders\n", [1]),
        ("deploy/helm/x/NOTES.txt", "A folder.\n", [1]),
        ("webhook/x.json", '"A folder"', []),
        ("docs/page.md", "sub-folder folder_ folder.py folder() /folder\n", []),
    ):
        with subtests.test(name=name, text=text):
            assert [hit.line for hit in prose.check(name, text, WORDS)] == lines


def test_a_word_is_allowed_where_its_entry_says_so() -> None:
    words = prose.vocabulary([{"avoid": "leaf", "use": "-", "allowed_in": "certs/"}])
    assert not list(prose.check("certs/x.py", "# A leaf.\n", words))
    [hit] = prose.check("webhook/serve/http/x.py", "# A leaf.\n", words)
    assert str(hit) == 'webhook/serve/http/x.py:1: "leaf": -'

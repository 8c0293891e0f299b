"""The code blocks of the documentation, and how tests run them.

A comment right before a block describes it, as ``key: value; key: value``:

``file: NAME``      the content of a file for the following commands
``exit: NUMBER``    the exit status of its commands, by default 0
``cluster``         its commands use a cluster with gpufence
``verdict: WORDS``  what ``gpufence check`` says of the manifest: a verdict, and the rules that find
                    something; a second manifest's stands behind a comma
``policy: NAME``    by the policy in that file of the same page
``not run: WHY``    it cannot run or be checked here
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from paths import PROJECT
from policies.document import KIND, FencePolicy
from policies.schema import json_schema

LIFE = tuple(
    f"docs/operate/{name}.md"
    for name in ("install", "gitops", "upgrade", "break-glass", "restore", "uninstall")
)
"""The pages about the life of an installation. tests/e2e/deploy/test_docs.py runs their commands in
this order, in an installation of its own."""
_FENCE = re.compile(
    r"^(?:<!-- (?P<notes>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
VALUES = "# values: "
"""The start of a block with values of the chart, which tests/e2e/deploy/test_docs.py installs."""
NOTES = {"file", "exit", "cluster", "verdict", "policy", "not run"}
ELLIPSIS = "..."
_POLICY_KEYS = set(json_schema(FencePolicy)["properties"])


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines that are shown after it."""

    text: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """One fenced block of a page; ``page`` is its path from the root of the project."""

    page: str
    line: int
    language: str
    text: str
    notes: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> Iterator[Command]:
        """Yield the commands: lines after ``$``, continued by ``>``."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            more = next(
                (i for i, s in enumerate(lines[1:], 1) if not s.startswith("> ")), len(lines)
            )
            command = [lines[0], *(line.removeprefix("> ") for line in lines[1:more])]
            yield Command("\n".join(command), tuple(lines[more:]))


def pages() -> list[str]:
    """Return every page that is written by hand, the README first."""
    paths = (PROJECT / "docs").rglob("*.md")
    written = [p for p in paths if p.parent.name != "rules" or p.name == "index.md"]
    return ["README.md", *sorted(str(path.relative_to(PROJECT)) for path in written)]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order.

    Raises:
        ValueError: a comment has an unknown note.
    """
    text = (PROJECT / page).read_text()
    parsed = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        notes = _notes(match["notes"] or "")
        if unknown := notes.keys() - NOTES:
            raise ValueError(f"{page}:{line}: unknown notes: {', '.join(sorted(unknown))}")
        parsed.append(Block(page, line, match["language"], match["text"], notes))
    return parsed


def fence_policies(block: Block) -> list[dict[str, Any]]:
    """Return the documents of a YAML block that are policies, or that show a part of the spec."""
    documents = yaml.safe_load_all(block.text) if block.language == "yaml" else ()
    return [
        document
        for document in documents
        if isinstance(document, dict)
        and "spec" in document
        and document.keys() <= _POLICY_KEYS
        and document.get("kind", KIND) == KIND
    ]


def agrees(shown: tuple[str, ...], printed: str) -> bool:
    """Return whether the output matches the lines that a page shows.

    A line ``...`` stands for any number of lines; at the end of a line it stands for its rest.
    """
    text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return re.fullmatch("".join(_expression(line.rstrip()) for line in shown), text) is not None


def _expression(line: str) -> str:
    if line == ELLIPSIS:
        return r"(?:.*\n)*"
    if line.endswith(ELLIPSIS):
        return re.escape(line.removesuffix(ELLIPSIS)) + r".*\n"
    return re.escape(line) + r"\n"


def _notes(text: str) -> dict[str, str]:
    pairs = (note.partition(":") for note in text.split(";") if note.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}

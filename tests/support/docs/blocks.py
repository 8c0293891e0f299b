"""The blocks of the pages: what is shown, and how it is tried.

A comment right before a block describes it, as ``key: value; key: value``:

``file: NAME``      the block is the content of that file, for the commands after it
``exit: NUMBER``    the status that its commands end with, 0 unless said
``cluster``         its commands speak to a cluster that gpufence guards
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
from policies.document.model import KIND, FencePolicy

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
"""How values of the chart begin; what they are for follows. tests/e2e/deploy/test_docs.py installs
them."""
NOTES = {"file", "exit", "cluster", "verdict", "policy", "not run"}
ELLIPSIS = "..."
_POLICY_KEYS = {field.alias for field in FencePolicy.model_fields.values()}


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
        """Yield the commands: what follows ``$``, and ``>`` where one goes over several lines."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            more = next(
                (i for i, s in enumerate(lines[1:], 1) if not s.startswith("> ")), len(lines)
            )
            command = [lines[0], *(line.removeprefix("> ") for line in lines[1:more])]
            yield Command("\n".join(command), tuple(lines[more:]))


def pages() -> list[str]:
    """Return every page that is written by hand, the README first."""
    found = (PROJECT / "docs").rglob("*.md")
    written = [p for p in found if p.parent.name != "rules" or p.name == "index.md"]
    return ["README.md", *sorted(str(path.relative_to(PROJECT)) for path in written)]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order.

    Raises:
        ValueError: a comment says what nothing is known by.
    """
    text = (PROJECT / page).read_text()
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        notes = _notes(match["notes"] or "")
        if unknown := notes.keys() - NOTES:
            raise ValueError(f"{page}:{line}: unknown notes: {', '.join(sorted(unknown))}")
        found.append(Block(page, line, match["language"], match["text"], notes))
    return found


def fence_policies(block: Block) -> list[dict[str, Any]]:
    """Return the documents of a YAML block that are policies or parts of one."""
    documents = yaml.safe_load_all(block.text) if block.language == "yaml" else ()
    return [
        each for each in documents if set(each) <= _POLICY_KEYS and each.get("kind", KIND) == KIND
    ]


def agrees(shown: tuple[str, ...], printed: str) -> bool:
    """Return whether what a page shows is what was printed.

    A line ``...`` is any number of lines, and at the end of one it is the rest of it.
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
    pairs = (each.partition(":") for each in text.split(";") if each.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}

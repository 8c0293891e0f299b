"""Checks the project's prose against a vocabulary, as ``make check`` does.

Prose is what a person reads: Markdown, docstrings, comments, messages in Python strings, comments
and descriptions in YAML, and the help of the Makefile. ``prose.yaml`` in this directory lists
the words to avoid and what to write instead. Code, names and URLs are not prose.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paths import PROJECT

VOCABULARY = Path(__file__).with_name("prose.yaml")
_CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+\1", re.DOTALL)
_NOT_PROSE = re.compile(r"https?://\S+|\]\([^)]*\)|<!--.*?-->|\{\{.*?\}\}", re.DOTALL)
_FENCE = re.compile(r"^ *(`{3,}|~{3,})[^\n]*\n.*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_KINDS = (".md", ".py", ".yaml", ".yml", ".tpl", ".toml", "Dockerfile", "Makefile", "NOTES.txt")
_SPACE = re.compile(r"[ \t]*(\n)[ \t]*|[ \t]+")
_DESCRIPTION = re.compile(
    r"^(?P<indent> *)(?:- )?(?:description|summary|title): (?P<text>.*(?:\n(?P=indent) +.*)*)",
    re.MULTILINE,
)
_MESSAGE = re.compile(r"[A-Za-z]+,? [a-z_]+,? [a-z_]+")
"""Distinguishes a message from a name, a path or a selector: three words in a row."""


@dataclass(frozen=True)
class Passage:
    """A piece of prose, and the line on which it starts."""

    line: int
    text: str


@dataclass(frozen=True)
class Word:
    """Words to avoid, what to write instead, and where the words are correct."""

    pattern: re.Pattern[str]
    use: str
    allowed_in: re.Pattern[str] | None


@dataclass(frozen=True)
class Hit:
    """An occurrence of a word to avoid."""

    path: str
    line: int
    word: str
    use: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.word}": {self.use}'


def main() -> int:
    """Print every occurrence of a word to avoid."""
    words = vocabulary(yaml.safe_load(VOCABULARY.read_text())["words"])
    paths = files()
    hits = [
        hit for path in paths for hit in check(path, (PROJECT / path).read_text("utf-8"), words)
    ]
    for hit in hits:
        print(hit)
    print(f"prose: {len(hits)} words to avoid in {len(paths)} files")
    return 1 if hits else 0


def files() -> list[str]:
    """Return the files of the checkout that hold prose, except for the vocabulary itself."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = {path for path in listed.stdout.splitlines() if (PROJECT / path).is_file()}
    own = str(VOCABULARY.relative_to(PROJECT))
    return sorted(path for path in paths - {own} if path.endswith(_KINDS))


def vocabulary(entries: Iterable[dict[str, Any]]) -> list[Word]:
    """Compile the vocabulary's entries."""
    return [
        Word(
            re.compile(
                rf"(?<![\w./-])(?:{entry['avoid']})(?![\w-]|\.\w|\(\))".replace(" ", r"\s"),
                re.IGNORECASE,
            ),
            entry["use"],
            re.compile(entry["allowed_in"]) if "allowed_in" in entry else None,
        )
        for entry in entries
    ]


def check(path: str, text: str, words: Iterable[Word]) -> Iterator[Hit]:
    """Yield the words to avoid in the text of a file."""
    applicable = [word for word in words if not (word.allowed_in and word.allowed_in.match(path))]
    for passage in passages(path, text):
        prose = _SPACE.sub(_one, _blank(_NOT_PROSE, _blank(_CODE_SPAN, passage.text)))
        for word in applicable:
            for match in word.pattern.finditer(prose):
                line = passage.line + prose.count("\n", 0, match.start())
                yield Hit(path, line, " ".join(match[0].split()), word.use)


def passages(path: str, text: str) -> Iterator[Passage]:
    """Yield the prose of a file, by its kind."""
    if path.endswith(".md"):
        yield Passage(1, _blank(_FENCE, text))
    elif path.endswith(".py"):
        yield from _python(text, messages=not path.startswith("tests/"))
    elif path.endswith(("gpufence.rules.yaml", "NOTES.txt")):
        yield Passage(1, text)
    elif path.endswith(_KINDS):
        yield from _comments(text)
        if path.endswith((".yaml", ".yml")):
            yield from _descriptions(text)


def _python(source: str, *, messages: bool) -> Iterator[Passage]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    yield from _joined(lines)
    covered = set[ast.AST]()
    for node in ast.walk(ast.parse(source)):
        # A string as a statement documents the definition around or above it.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            covered.add(node.value)
            yield Passage(node.lineno, str(node.value.value))
        elif messages and node not in covered and isinstance(node, ast.JoinedStr | ast.Constant):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            covered.update(parts)
            # A replacement field of an f-string counts as one word.
            values = [part.value if isinstance(part, ast.Constant) else "_" for part in parts]
            text = "".join(value for value in values if isinstance(value, str))
            if _MESSAGE.search(text):
                yield Passage(node.lineno, text)


def _comments(text: str) -> Iterator[Passage]:
    numbered = enumerate(text.splitlines(), 1)
    marks = ((number, re.search(r"(?:^|\s)#+ .*", line)) for number, line in numbered)
    yield from _joined({number: mark[0].strip() for number, mark in marks if mark})


def _descriptions(text: str) -> Iterator[Passage]:
    """Yield the values that describe something, with the lines that continue them."""
    for match in _DESCRIPTION.finditer(text):
        yield Passage(text.count("\n", 0, match.start()) + 1, match["text"])


def _joined(lines: dict[int, str]) -> Iterator[Passage]:
    """Yield comments; those on consecutive lines are one passage."""
    first, block = 0, list[str]()
    for number, line in lines.items():
        if block and number != first + len(block):
            yield Passage(first, "\n".join(block))
            block = []
        first = first if block else number
        block.append(line.lstrip("#"))
    if block:
        yield Passage(first, "\n".join(block))


def _one(space: re.Match[str]) -> str:
    return space[1] or " "


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """Return the text with every match replaced by one sign that is no backtick, and its lines."""
    return pattern.sub(lambda match: "\ufffc" + "\n" * match[0].count("\n"), text)


if __name__ == "__main__":
    sys.exit(main())

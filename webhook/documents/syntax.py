"""YAML syntax errors: where, what, and what to look for."""

from __future__ import annotations

import re

import yaml

from webhook.documents.errors import ManifestError
from webhook.documents.placeholders import looks_like_template
from webhook.wording import counted

_NO_TABS = "Indent with spaces: YAML does not accept tabs there"
# The messages of the parser, with the usual cause.
_CURES = {
    "found a tab character": _NO_TABS,
    "mapping values are not allowed": (
        'Put the value in quotes if it holds ": ", or align the line with its neighbors'
    ),
    "did not find expected key": "Align the line with its neighbors, or look for a stray quote",
    "expected <block end>": "Align the line with its neighbors",
    "did not find expected '-' indicator": "Align the line with the list entries above it",
    "did not find expected <document start>": (
        "The document ended above: look for a stray line, or put a line with --- in between"
    ),
    "could not find expected ':'": "Look for a missing colon, or a quote that is not closed",
    "found unexpected end of stream": "Look for a quote that is not closed",
    "did not find expected ',' or": "Look for a missing comma, or a bracket that is not closed",
    "did not find expected node content": (
        "Look for a bracket that is not closed, or a comma too many"
    ),
    "block sequence entries are not allowed": "Put the list on the next line",
}
HELM_CURE = (
    "It looks like a Helm template: check what it renders to, helm template CHART | "
    "gpufence check -"
)
_LINE_BREAK = re.compile("\r\n?|[\n\x85\u2028\u2029]")
# Characters that YAML does not accept unescaped (YAML 1.1, 4.1.1). The pattern is compiled on use,
# because it is rarely needed and takes long to compile.
_NOT_PRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufffe|\uffff"


def explain(error: yaml.YAMLError, text: str) -> ManifestError:
    """Return the error of the parser with line, column and what to do."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return not_printable(text) or ManifestError(f"does not parse as YAML: {error}")
    mark, problem = error.problem_mark, error.problem or ""
    cure = next((cure for start, cure in _CURES.items() if problem.startswith(start)), "")
    if problem.startswith("found character"):
        cure = _stray_character(text, mark.line, mark.column)
    if looks_like_template(text):
        cure = HELM_CURE
    if error.context:
        problem = f"{problem}, {error.context}"
        if error.context_mark is not None and error.context_mark.line < mark.line:
            lines = mark.line - error.context_mark.line
            problem += f" that starts {counted(lines, 'line')} above"
    message = f"does not parse as YAML: {problem}"
    located = ManifestError(message, line=mark.line + 1, column=mark.column + 1, cure=cure)
    clamp_to_text(located, text)
    return located


def clamp_to_text(error: ManifestError, text: str) -> None:
    """Move an error that points below the text to the last line.

    The parser counts one more line after the end of the text.
    """
    last = len(_LINE_BREAK.findall(text)) + 1
    if error.line > last:
        error.line, error.column = last, 0


def not_printable(text: str) -> ManifestError | None:
    """Return the error for the first character that YAML does not accept, if any."""
    match = re.search(_NOT_PRINTABLE, text)
    if match is None:
        return None
    before = text[: match.start()]
    # UTF-16 has a null byte for each ASCII character.
    is_utf16 = text.count("\0") > len(text) // 4
    return ManifestError(
        f"has the character U+{ord(match[0]):04X}, which YAML does not accept",
        line=before.count("\n") + 1,
        column=len(before) - before.rfind("\n"),
        cure="It looks like UTF-16: save it as UTF-8"
        if is_utf16
        else "Remove it, or write it as an escape in double quotes",
    )


def _stray_character(text: str, line: int, column: int) -> str:
    # Lines as the parser counts them.
    lines = _LINE_BREAK.split(text)
    character = lines[line][column : column + 1] if line < len(lines) else ""
    if character == "\t":
        return _NO_TABS
    return f"Put the value in quotes: it cannot start with {character}" if character else ""

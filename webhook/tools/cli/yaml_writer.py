"""JSON as YAML that every common parser reads back unchanged, and the difference of two objects.

Written for manifests: block style, lists as kubectl indents them, text in literal blocks. A string
that go-yaml, YAML 1.1 or YAML 1.2 could take for something else stands in quotes. (PyYAML's dumper
knows YAML 1.1 only: it leaves ``y``, ``08`` and ``1e3`` bare. And it takes several times as long.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from webhook.wording import ACTING

# Plain scalars: no indicator at the start, no ": " or " #" inside, no space at the end.
_BARE = re.compile(
    r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`=<~]|-(?=[^\s\-])|--(?=[^\s\-]))"
    r"(?:[^\s:#]|:(?=\S)|(?<=\S)#| (?=[^\s#]))*"
)
# Numbers of any YAML version, dates, times, base 60. Quoting too much is safe.
_LIKE_A_NUMBER = re.compile(
    r"[-+]?\.?[0-9][-+0-9_.,:etz ]*|[-+]?0[xob][0-9a-f_]*|[-+]?\.(?:inf|nan)?", re.IGNORECASE
)
_WORDS = frozenset({"y", "yes", "true", "on", "n", "no", "false", "off", "null"})
# What YAML calls not printable, and what acts on a terminal (``policies.wording``). Compiled on
# use, because it is rarely needed and takes long to compile.
_NOT_PRINTABLE = f"[{ACTING}]|[^\x20-\x7e\xa1-\ud7ff\ue000-\ufefe\uff00-\uffef]"
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
# Parsers search the colon of a key in 1,024 characters only.
_LONGEST_SIMPLE_KEY = 500

Mark = Literal[" ", "+", "-", "@"]

CONTEXT = 3
_ABSENT = object()


class Marked(NamedTuple):
    """A line that is unchanged, added or removed; ``@`` stands for omitted lines."""

    mark: Mark
    text: str


def to_yaml(value: Any) -> str:
    """Return parsed JSON as one YAML document, which ends with a line feed."""
    return "\n".join([*_lines(value), ""])


def _lines(value: Any) -> list[str]:
    """Return the lines of one YAML document, without line ends."""
    return _collection(value, "", "") if _is_block(value) else _scalar(value, "", "  ")


def entry_lines(key: str | None, value: Any, indent: str, start: str) -> list[str]:
    """Return the lines of an entry at ``indent``: of a mapping, or without a key of a list.

    Its first line starts with ``start``, which differs where a list's dash stands before it.
    """
    below = f"{indent}  "
    if key is None:
        head = f"{start}- "
        return _collection(value, below, head) if _is_block(value) else _scalar(value, head, below)
    lines = _key_lines(key, indent, start)
    if _is_block(value):
        place = below if isinstance(value, dict) else indent
        return lines + _collection(value, place, place)
    return lines[:-1] + _scalar(value, f"{lines[-1]} ", below)


def _key_lines(key: str, indent: str, start: str) -> list[str]:
    """Return the line with a key whose value is below it; a long key has two lines."""
    if len(key) > _LONGEST_SIMPLE_KEY:
        return [f"{start}? {_text(key)}", f"{indent}:"]
    return [f"{start}{_text(key)}:"]


def _is_block(value: Any) -> bool:
    """Return whether a value is written on lines of its own: a collection with entries."""
    return bool(value) and isinstance(value, dict | list)


def _collection(value: dict[str, Any] | list[Any], indent: str, start: str) -> list[str]:
    lines: list[str] = []
    entries = value.items() if isinstance(value, dict) else ((None, entry) for entry in value)
    for key, entry in entries:
        lines += entry_lines(key, entry, indent, start)
        start = indent
    return lines


def _scalar(value: Any, head: str, below: str) -> list[str]:
    """Return a scalar or an empty collection; the lines of a block are at ``below``."""
    if not isinstance(value, str):
        return [head + _word(value)]
    if "\n" not in value or not _fits_literal(value):
        return [head + _text(value)]
    body = value.removesuffix("\n")
    keep = "+" if body.endswith("\n") else "" if body != value else "-"
    lines = (f"{below}{line}" if line else "" for line in body.split("\n"))
    return [f"{head}|{keep}", *lines]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        # YAML 1.1 has no exponent without a point: 1e+22 would be a string.
        return text if "." in text else text.replace("e", ".0e")
    return str(value) if isinstance(value, int) else "{}" if isinstance(value, dict) else "[]"


@lru_cache(maxsize=16_384)
def _text(text: str) -> str:
    """Return a string on one line, in double quotes unless it can be plain."""
    if (
        _BARE.fullmatch(text)
        and not _LIKE_A_NUMBER.fullmatch(text)
        and text.lower() not in _WORDS
        and _is_printable(text)
        and not text.startswith("...")
    ):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if not _is_printable(escaped):
        escaped = re.sub(_NOT_PRINTABLE, _escape, escaped)
    return f'"{escaped}"'


def _is_printable(text: str) -> bool:
    return (text.isascii() and text.isprintable()) or not re.search(_NOT_PRINTABLE, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in _ESCAPES:
        return _ESCAPES[match[0]]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _fits_literal(text: str) -> bool:
    """Return whether a literal block can hold the text without an indentation indicator."""
    return text[0] not in " \t\n" and _is_printable(text.replace("\n", "").replace("\t", ""))


# Differences.


def difference(before: Any, after: Any) -> list[Marked]:
    """Return the lines in which two objects differ, with up to three around them.

    Both are walked together as trees. A comparison by line would mistake similar lines of
    neighboring entries for each other, and take minutes for the largest objects. Lists are compared
    entry by entry from the front, which fits mutations, because they append.
    """
    lines: list[Marked] = []
    if _are_alike(before, after):
        lines += _compared(before, after, "", "")
    elif before != after:
        lines += _marked("-", _lines(before))
        lines += _marked("+", _lines(after))
    changes = [number for number, line in enumerate(lines) if line.mark != " "]
    shown: list[Marked] = []
    end = 0
    for number in changes:
        start = max(end, number - CONTEXT)
        if start > end:
            shown.append(Marked("@", ""))
        shown += lines[start : number + CONTEXT + 1]
        end = max(end, number + CONTEXT + 1)
    return shown


def _are_alike(before: Any, after: Any) -> bool:
    """Return whether both are non-empty mappings, or both non-empty lists."""
    kinds = {type(before), type(after)}
    return bool(before and after) and (kinds == {dict} or kinds == {list})


def _compared(before: Any, after: Any, indent: str, start: str) -> Iterator[Marked]:
    """Yield the lines of two collections of the same type at ``indent``.

    The first line starts with ``start``.
    """
    pairs: Iterable[tuple[str | None, Any, Any]]
    if isinstance(after, dict):
        keys = [*after, *(key for key in before if key not in after)]
        pairs = ((key, before.get(key, _ABSENT), after.get(key, _ABSENT)) for key in keys)
    else:
        both = zip_longest(before, after, fillvalue=_ABSENT)
        pairs = ((None, old, new) for old, new in both)
    for key, old, new in pairs:
        if old is new or (type(old) is type(new) and old == new):
            yield from _marked(" ", entry_lines(key, new, indent, start))
        elif key is None and _are_alike(old, new):
            yield from _compared(old, new, f"{indent}  ", f"{start}- ")
        elif key is not None and _are_alike(old, new):
            yield from _marked(" ", _key_lines(key, indent, start))
            below = f"{indent}  " if isinstance(new, dict) else indent
            yield from _compared(old, new, below, below)
        else:
            if old is not _ABSENT:
                yield from _marked("-", entry_lines(key, old, indent, start))
            if new is not _ABSENT:
                yield from _marked("+", entry_lines(key, new, indent, start))
        start = indent


def _marked(mark: Mark, texts: Iterable[str]) -> Iterator[Marked]:
    return (Marked(mark, text) for text in texts)

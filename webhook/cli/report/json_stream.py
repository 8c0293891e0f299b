"""JSON whose one long list is written entry by entry, so that nobody has to hold all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec


def streamed(
    before: dict[str, Any],
    name: str,
    entries: Iterable[Any],
    after: Callable[[], dict[str, Any]],
    indent: str = "",
) -> Iterator[str]:
    """Yield an object: the fields ``before``, the list ``name``, and what is known ``after`` it.

    All is indented by two spaces a level, and ``indent`` is what the lines but the first start
    with.
    """
    end = f"\n{indent}}}"
    yield f'{_text(before, indent).removesuffix(end)},\n{indent}  "{name}": ['
    start = f"\n{indent}    "
    for entry in entries:
        yield start + _text(entry, f"{indent}    ")
        start = f",\n{indent}    "
    close = "]" if start.startswith("\n") else f"\n{indent}  ]"
    yield f"{close},{_text(after(), indent).removeprefix('{')}"


def _text(value: Any, indent: str) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # There are no line ends within strings: JSON writes them as escapes.
    return text.replace("\n", f"\n{indent}") if indent else text

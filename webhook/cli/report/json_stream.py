"""JSON with one long list that is written entry by entry, to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec


def streamed(
    before: dict[str, Any],
    results: Iterable[Any],
    after: Callable[[], dict[str, Any]],
    indent: str = "",
) -> Iterator[str]:
    """Yield an object: the fields ``before``, the list of results, and the fields ``after`` it.

    Each level is indented by two spaces. All lines but the first start with ``indent``.
    """
    end = f"\n{indent}}}"
    yield f'{_text(before, indent).removesuffix(end)},\n{indent}  "results": ['
    start = f"\n{indent}    "
    for result in results:
        yield start + _text(result, f"{indent}    ")
        start = f",\n{indent}    "
    close = "]" if start.startswith("\n") else f"\n{indent}  ]"
    yield f"{close},{_text(after(), indent).removeprefix('{')}"


def _text(value: Any, indent: str) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # Strings have no line breaks: JSON escapes them.
    return text.replace("\n", f"\n{indent}") if indent else text

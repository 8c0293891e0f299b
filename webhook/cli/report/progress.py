"""A progress bar for long runs on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds before the bar appears: most runs are shorter."""

_REFRESH = 0.1


def watched(what: str, enabled: bool) -> Callable[[Sequence[T]], Iterable[T]]:
    """Return a function that yields the items of a sequence, with a progress bar on a terminal."""
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        return iter
    return lambda items: _with_bar(items, what)


def _with_bar(items: Sequence[T], what: str) -> Iterator[T]:
    started = shown = time.monotonic()
    bar = None
    try:
        for done, item in enumerate(items):
            now = time.monotonic()
            if bar is None and now - started > PATIENCE:
                from rich.console import Console
                from rich.progress import Progress

                # The bar redraws only on refresh(), and disappears before the report.
                bar = Progress(console=Console(stderr=True), transient=True, auto_refresh=False)
                task = bar.add_task(what, total=len(items))
                bar.start()
            if bar is not None and now - shown > _REFRESH:
                shown = now
                bar.update(task, completed=done)
                bar.refresh()
            yield item
    finally:
        if bar is not None:
            bar.stop()

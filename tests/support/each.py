"""Runs one test over many cases: as fast as a loop, and with a report of every failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def each(cases: Iterable[T], test: Callable[[T], None]) -> None:
    """Call `test` with each case.

    Raises:
        ExceptionGroup: it fails for some; each failure has its case as a note.
    """
    count, failures = 0, []
    for count, case in enumerate(cases, 1):  # noqa: B007 - what is left of it is the number
        try:
            test(case)
        except Exception as failure:
            failure.add_note(f"case: {case}")
            failures.append(failure)
    assert count, "no cases"
    if failures:
        raise ExceptionGroup(f"{test.__name__}: {len(failures)} of {count} cases", failures)

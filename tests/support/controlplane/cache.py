"""The cache of built programs, and the lock against concurrent builds."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

REPORT_EVERY = 10.0
"""Seconds between progress messages on stderr: a silent CI job looks hung."""


def root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the cache's directory by the XDG Base Directory Specification. It may not exist."""
    configured = environ.get("XDG_CACHE_HOME", "")
    # The specification ignores relative paths as invalid.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return base / "gpufence" / "controlplane"


def say(message: str) -> None:
    """Report progress on stderr."""
    print(f"controlplane: {message}", file=sys.stderr, flush=True)


@contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, waiting as long as another process has it.

    The kernel releases it when the holder ends, so a killed build leaves nothing to clean up.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        started = reported = time.monotonic()
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - reported >= REPORT_EVERY:
                    reported = time.monotonic()
                    say(f"another process has been {what} for {reported - started:.0f} s, waiting")
                time.sleep(0.2)
        yield


def filled(home: Path, what: str, fill: Callable[[Path], None]) -> Path:
    """Return a directory of the cache. `fill` makes it, once, at the path that it gets.

    If `fill` raises an error, nothing is left.
    """
    with lock(home.with_name(f"{home.name}.lock"), what):
        if not home.exists():
            say(f"{what} ...")
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="filling-") as temporary:
                made = Path(temporary) / "made"
                fill(made)
                made.replace(home)
    return home

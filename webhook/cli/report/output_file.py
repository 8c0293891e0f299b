"""The file of a report: the complete report, or the previous content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from webhook.cli.errors import unwritable
from webhook.wording import printable


@contextmanager
def written(path: str) -> Iterator[TextIO]:
    """Provide a file that replaces the one at ``path`` once it is complete.

    A device, a pipe, or a file that cannot be replaced is written in place. Nothing of it is lost
    before the first byte is written.

    Raises:
        InputError: it cannot be written.
    """
    # A link stays, and its target is replaced.
    place = Path(os.path.realpath(path))
    try:
        file = _temporary(Path(path), place) or _itself(path)
    except OSError as error:
        raise unwritable(printable(path), error) from error
    if isinstance(file.name, int):
        with file:
            yield file
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate()
        return
    beside = Path(file.name)
    try:
        with file:
            yield file
        _replace(place, beside)
    finally:
        beside.unlink(missing_ok=True)


def _temporary(path: Path, place: Path) -> TextIO | None:
    """Open a new file that can replace the one at ``place``; None if that is not possible.

    Raises:
        OSError: the file at ``path`` cannot be examined.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    if status is not None:
        is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
        if not (stat.S_ISREG(status.st_mode) and is_ours and os.access(path, os.W_OK)):
            return None
    # /dev/stderr may be a file that other processes write to.
    if path.absolute().is_relative_to("/dev"):
        return None
    beside = place.with_name(f".{place.name:.50}.{os.getpid()}.tmp")
    try:
        file = beside.open("x", encoding="utf-8", newline="\n")
    except OSError:  # writing in place reports it, if that fails as well
        return None
    if status is not None:
        beside.chmod(stat.S_IMODE(status.st_mode))
    return file


def _itself(path: str) -> TextIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    # open() with a path would truncate the file at once.
    return open(descriptor, "w", encoding="utf-8", newline="\n")  # noqa: PTH123 - no path


def _replace(place: Path, beside: Path) -> None:
    try:
        beside.replace(place)
    except OSError:
        # A file that is a mount point cannot be replaced.
        place.write_bytes(beside.read_bytes())

"""Exit statuses, and errors of files that cannot be written."""

from __future__ import annotations

from pathlib import Path

from webhook.documents.errors import InputError

EXIT_FOUND = 1
EXIT_INPUT = 2


def unwritable(path: str, error: OSError) -> InputError:
    """Return the error of a file that cannot be opened for writing."""
    match error:
        case FileNotFoundError():
            problem = f"directory {Path(path).parent} does not exist. Create it"
        case IsADirectoryError():
            problem = "is a directory. Name a file in it"
        case _:
            problem = f"cannot be written ({error.strerror or error}). Name another file"
    return InputError([f"{path}: {problem}."])

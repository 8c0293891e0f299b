"""A mounted ConfigMap or Secret, as a kubelet updates it: a new directory and a swapped link."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class Volume:
    """Files in a directory, which change all at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self._content: Mapping[str, bytes] = {}
        self._version = 0

    def file(self, name: str) -> Path:
        """Return the path of a file, whether it is there or not."""
        return self.directory / name

    def write(self, content: Mapping[str, bytes]) -> None:
        """Replace the files; without a change, nothing happens."""
        if content == self._content:
            return
        self._content = content
        self._version += 1
        version = self.directory / f"..{self._version}"
        version.mkdir()
        for name, data in content.items():
            (version / name).write_bytes(data)
            if not (link := self.file(name)).is_symlink():
                link.symlink_to(Path("..data") / name)
        swapped = self.directory / "..data_tmp"
        swapped.symlink_to(version.name)
        swapped.rename(self.directory / "..data")

"""Builds the programs and the base image of a node into the cache: `make node` runs it first."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from controlplane import cache
from controlplane.errors import ControlPlaneError
from node.binaries import node_binaries, require_tools
from node.image import Images, base_archive


def main() -> int:
    """Print the path of each; return the exit code."""
    try:
        require_tools()
        found = {**node_binaries(), "base image": base_archive()}
        with tempfile.TemporaryDirectory() as temporary:
            cache.say("building the image. The first time takes a minute or two")
            Images(Path(temporary)).gpufence("built")
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    for name, path in found.items():
        print(f"{name:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

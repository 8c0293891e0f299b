"""Plays gpufence's main job on a real control plane, through kubectl: run me as a file."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a file, this folder is the first of sys.path; the modules are imported from tests/.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from controlplane.stage import main

    sys.exit(main())

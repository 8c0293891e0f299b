"""The demo: `make demo`, or `python -m controlplane.demo [--keep]`."""

from __future__ import annotations

import sys

from controlplane.stage import main

if __name__ == "__main__":
    sys.exit(main())

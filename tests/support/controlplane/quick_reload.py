"""Run `gpufence` so that it reads its files every 0.05 seconds: `quick_reload.py ARGUMENTS...`."""

from __future__ import annotations

import functools
import sys

from webhook.cli.main import main
from webhook.server import replica

if __name__ == "__main__":
    quick = functools.partial(replica.ServeOptions, reload_seconds=0.05)
    replica.ServeOptions = quick  # type: ignore[misc, assignment]
    sys.exit(main())

"""The command line: `commands` has one module a command, `manifests` reads, `report` writes."""

from __future__ import annotations

import os
import signal

if os.getpid() == 1:
    # The process with PID 1 of a container ignores signals that it does not handle. Without this, a
    # SIGTERM during the imports would be lost. Here, because it comes before all other imports.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))

"""How a process of ours ended, in words."""

from __future__ import annotations

import signal


def describe_exit(code: int, instead: str) -> str:
    """Return what an exit code says, negative for a signal, and what to do about it.

    ``instead`` is what may be done where memory was short, beside raising its limit.
    """
    if code >= 0:
        return f"exit status {code}: see what it has said before"
    by = f"signal {-code} ({signal.strsignal(-code)}): if nobody sent it"
    if -code == signal.SIGKILL:
        return f"{by}, memory was short: raise its limit, or {instead}"
    return f"{by}, please report it as a bug, with the lines before"

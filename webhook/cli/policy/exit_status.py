"""The end of a child process in words."""

from __future__ import annotations

import signal


def describe_exit(code: int, instead: str) -> str:
    """Describe an exit code, negative for a signal, and what to do.

    ``instead`` is an alternative to a higher memory limit.
    """
    if code >= 0:
        return f"exit status {code}; its messages are above"
    by = f"signal {-code} ({signal.strsignal(-code)})"
    if -code == signal.SIGKILL:
        return f"{by}, probably for lack of memory. Raise the memory limit, or {instead}"
    return f"{by}. If no process sent it, report a bug with the lines above"

"""Runs a command that does not outlive the process that started it: `launch.py PARENT COMMAND...`.

The kernel kills this process when the thread that started it ends (prctl(2),
PR_SET_PDEATHSIG), and the command takes this process' place, which keeps that setting. It is done
here rather than between fork and exec in the starting process, where Python may run no code safely.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"{command[0]}: not started, the process that wanted it is gone")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

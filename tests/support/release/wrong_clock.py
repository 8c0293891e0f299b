"""Run `gpufence` on a machine whose clock is wrong: `wrong_clock.py SECONDS ARGUMENTS...`.

Only the process has the wrong time. OpenSSL reads the clock by itself, and is right.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from datetime import tzinfo
from pathlib import Path
from typing import Any, Self

_SHIFT = float(sys.argv.pop(1))
_time, _real = time.time, dt.datetime


class _Shifted(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real)


class _Datetime(dt.datetime, metaclass=_Shifted):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)


# Before gpufence imports either.
time.time = lambda: _time() + _SHIFT
dt.datetime = _Datetime  # type: ignore[misc]

sys.path.append(str(Path(__file__).parents[1]))

from controlplane.quick import main  # noqa: E402

sys.exit(main())

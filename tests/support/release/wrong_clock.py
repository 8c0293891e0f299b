"""A machine whose clock is wrong. OpenSSL reads the clock by itself, and is right."""

from __future__ import annotations

import datetime as dt
import sys
import time
from datetime import tzinfo
from typing import Any, Self


def shift(ahead: dt.timedelta) -> None:
    """Shift the clock of this process, also for the modules that it has imported."""
    clock, real = time.time, dt.datetime

    class Shifted(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

    class Datetime(dt.datetime, metaclass=Shifted):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time(), tz)

    def shifted() -> float:
        return clock() + ahead.total_seconds()

    for module in list(sys.modules.values()):
        for name, old, new in (("datetime", real, Datetime), ("time", clock, shifted)):
            if getattr(module, name, None) is old:
                setattr(module, name, new)

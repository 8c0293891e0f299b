"""A task that runs at an interval for as long as the process runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from certs import CertificateError
from webhook.kube.errors import ClusterError, spread
from webhook.logs import event

_log = logging.getLogger("gpufence")

# How soon a failed step is retried.
_RETRY_SECONDS = 2.0


class PeriodicTask:
    """Runs ``step`` every ``seconds`` and survives its failures, after which it retries sooner.

    A failure that repeats is logged once. After each run, ``failed`` or ``succeeded`` is called
    with the name. However often it is woken, there are ``pause`` seconds between two runs.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        seconds: float,
        failed: Callable[[str], None] = lambda _name: None,
        succeeded: Callable[[str], None] = lambda _name: None,
        pause: float = 0.0,
    ) -> None:
        self.problem = ""
        """Why the last run failed; empty if it succeeded."""
        self.has_succeeded = False
        """Whether a run has succeeded."""
        self.name = name
        self._delay = seconds
        self._step = step
        self._seconds = seconds
        self._failed = failed
        self._succeeded = succeeded
        self._pause = pause
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Run the step soon, and not only at the end of the interval."""
        self._woken.set()

    async def run_once(self) -> bool:
        """Run the step, and return whether it succeeded."""
        try:
            result = self._step()
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            expected = isinstance(error, (CertificateError, ClusterError))
            problem = " ".join(str(error).splitlines()) or type(error).__name__
            self._failed(self.name)
            self._delay = spread(
                max(min(self._seconds, _RETRY_SECONDS), getattr(error, "retry_after", 0.0))
            )
            if problem != self.problem:
                level = logging.WARNING if expected else logging.ERROR
                event(_log, level, f"{self.name} failed", failure=not expected, problem=problem)
            self.problem = problem
            return False
        if self.problem:
            event(_log, logging.INFO, f"{self.name} restored")
        self.problem, self.has_succeeded, self._delay = "", True, self._seconds
        self._succeeded(self.name)
        return True

    async def run_forever(self) -> NoReturn:
        """Run the step now, and then at the interval or when woken."""
        while True:
            self._woken.clear()
            await self.run_once()
            await asyncio.sleep(self._pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._delay):
                    await self._woken.wait()

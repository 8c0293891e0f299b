"""Something that is done every few seconds for as long as the server runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from certs.errors import CertificateError
from webhook.kube.errors import ClusterError
from webhook.logs import event

_log = logging.getLogger("gpufence")


class Repeated:
    """Something that is done every few seconds for good, and outlives its own failures."""

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[None] | None],
        failed: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self.problem = ""
        """Why the last attempt failed; empty if it did not."""
        self.name = name
        self._step = step
        self._failed = failed

    async def once(self) -> bool:
        """Try; tell whether it worked. A failure that goes on is one line in the log."""
        try:
            done = self._step()
            if inspect.isawaitable(done):
                await done
        except Exception as error:
            expected = isinstance(error, (ClusterError, CertificateError))
            problem = str(error) or type(error).__name__
            self._failed(self.name)
            if problem != self.problem:
                level = logging.WARNING if expected else logging.ERROR
                event(_log, level, f"{self.name} failed", failure=not expected, problem=problem)
            self.problem = problem
            return False
        if self.problem:
            event(_log, logging.INFO, f"{self.name} restored")
        self.problem = ""
        return True

    async def forever(self, seconds: float) -> NoReturn:
        """Try every ``seconds``, from now on."""
        while True:
            await self.once()
            await asyncio.sleep(seconds)

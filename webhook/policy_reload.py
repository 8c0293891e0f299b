"""The active policy, and how a new one replaces it while the process runs.

The document is a file, mostly of a mounted ConfigMap, which Kubernetes updates by swapping a
symbolic link. It is read at an interval and compared by content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from policies.policy import Policy
from policies.shipped import shipped_policy
from webhook.logs import event
from webhook.tools.documents.document import InputError
from webhook.tools.documents.files import STDIN
from webhook.tools.documents.policy_files import policy_name, read_policy, read_policy_text

ReloadResult = Literal["applied", "rejected"]
"""The result for a new policy document."""

_log = logging.getLogger("gpufence")


class ReloadingPolicy:
    """Holds the last good policy of a file.

    The default policy, and a policy on standard input, stay. The ``followers`` are called with each
    new policy, and ``count`` with the result of each new document.
    """

    def __init__(self, path: str | None) -> None:
        """Load the policy for the first time; without a path, it is the default policy.

        Raises:
            InputError: the policy cannot be read, or is invalid.
        """
        self.followers: list[Callable[[Policy], None]] = []
        self.count: Callable[[ReloadResult], None] = lambda _result: None
        self._path = path if path != STDIN else None
        self._text = "" if path is None else read_policy_text(path)
        self._rejected: str | None = None
        """The newest document, if it is invalid."""
        self._problems: tuple[str, ...] = ()
        self.current = (
            shipped_policy() if path is None else read_policy(policy_name(path), self._text)
        )
        """The active policy."""
        self.generation = 1
        """How many policies have been active."""

    async def poll(self) -> None:
        """Read the file, and activate its policy if it is new.

        Meanwhile, the previous policy answers reviews.

        Raises:
            InputError: the file cannot be read, or its policy is invalid.
        """
        if self._path is None:
            return
        text = read_policy_text(self._path)
        if text == self._rejected:
            raise InputError(self._problems)
        self._rejected = None
        if text == self._text:
            return
        try:
            policy = await asyncio.to_thread(read_policy, policy_name(self._path), text)
        except InputError as error:
            self._rejected, self._problems = text, error.lines
            self.count("rejected")
            raise
        for follow in self.followers:
            follow(policy)
        self._text, self.current = text, policy
        self.generation += 1
        self.count("applied")
        pools = [pool.name for pool in policy.pools]
        event(_log, logging.INFO, "policy applied", generation=self.generation, pools=pools)

"""The active policy, and how a new one replaces it while the replica serves.

The document is a file, mostly of a mounted ConfigMap, which Kubernetes updates by swapping a
symbolic link. It is read at an interval and compared by content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from policies.policy import Policy
from webhook.logs import event
from webhook.metrics.controllers import ReloadResult

_log = logging.getLogger("gpufence")


class PolicyUnusableError(Exception):
    """The policy cannot be read, or is invalid: the source, the problem, the remediation."""


class NoPolicyError(PolicyUnusableError):
    """The document is not a valid policy. Reading it again does not help."""


class PolicySource(Protocol):
    """The source of the policy."""

    def read(self) -> bytes:
        """Return the document as it is now; raises PolicyUnusableError."""

    async def parse(self, document: bytes) -> Policy:
        """Return the policy in a document; raises PolicyUnusableError."""


class FixedPolicy:
    """A policy that never changes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def read(self) -> bytes:
        return b""

    async def parse(self, document: bytes) -> Policy:
        return self._policy


class ReloadingPolicy:
    """Holds the last good policy of a source.

    The ``followers`` are called with each new policy, and the ``counters`` with the result of each
    new document.
    """

    def __init__(self, source: PolicySource, document: bytes, policy: Policy) -> None:
        self.followers: list[Callable[[Policy], None]] = []
        self.counters: list[Callable[[ReloadResult], None]] = []
        self._source = source
        self._document = document
        self._rejected: bytes | None = None
        self.current = policy
        """The active policy."""
        self.generation = 1
        """How many policies have been active."""
        self.problem = ""
        """Why the newest document is not active; empty if it is."""

    @classmethod
    async def load(cls, source: PolicySource) -> ReloadingPolicy:
        """Load the policy for the first time; raises PolicyUnusableError."""
        document = source.read()
        return cls(source, document, await source.parse(document))

    async def poll(self) -> None:
        """Read the source, and activate its policy if it is new and valid.

        The one before answers reviews meanwhile.
        """
        document = None
        try:
            document = self._source.read()
            if document == self._rejected:
                return
            policy = None if document == self._document else await self._source.parse(document)
        except PolicyUnusableError as error:
            self._rejected = document if isinstance(error, NoPolicyError) else None
            self._reject(str(error))
            return
        self._rejected, self.problem = None, ""
        if policy is None:
            return
        for follow in self.followers:
            follow(policy)
        self._document, self.current = document, policy
        self.generation += 1
        self._report("applied")
        pools = [pool.name for pool in policy.pools]
        event(_log, logging.INFO, "policy applied", generation=self.generation, pools=pools)

    def _reject(self, problem: str) -> None:
        """Log and count once why the document is not active."""
        if problem == self.problem:
            return
        self.problem = problem
        self._report("rejected")
        event(
            _log,
            logging.ERROR,
            "policy rejected",
            problem=problem,
            activeGeneration=self.generation,
        )

    def _report(self, result: ReloadResult) -> None:
        for count in self.counters:
            count(result)

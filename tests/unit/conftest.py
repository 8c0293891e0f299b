"""Webhooks to speak to, and one CA for the tests that need any CA, at one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from certificates import issue
from certs.authority import create_authority, issue_leaf
from reviewing import default_policy
from served import Hook, MakeHook, serve_policy

if TYPE_CHECKING:
    from certs.keypair import KeyPair
    from policies.policy import Policy


@pytest.fixture
async def make_hook() -> AsyncIterator[MakeHook]:
    """Return what serves a policy until the end of the test."""
    async with AsyncExitStack() as stack:

        async def make(policy: Policy) -> Hook:
            return await serve_policy(stack, policy)

        yield make


@pytest.fixture
async def hook(make_hook: MakeHook) -> Hook:
    """Serve the default policy."""
    return await make_hook(default_policy())


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Return a directory with a CA and a serving certificate."""
    issue(["localhost", "127.0.0.1"], tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def now() -> datetime:
    """The moment at which everything in a test happens: real, because TLS reads the real clock."""
    return datetime.now(UTC)


@pytest.fixture(scope="session")
def names() -> list[str]:
    return ["gpufence.gpufence.svc", "localhost", "127.0.0.1", "::1"]


@pytest.fixture(scope="session")
def authority(now: datetime) -> KeyPair:
    return create_authority(now)


@pytest.fixture(scope="session")
def leaf(authority: KeyPair, names: list[str], now: datetime) -> KeyPair:
    return issue_leaf(authority, names, now)

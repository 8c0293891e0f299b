"""One CA for the tests that need any CA, at one moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from certs.authority import create_authority, issue_leaf
from certs.names import Names

if TYPE_CHECKING:
    from certs.keypair import KeyPair


@pytest.fixture(scope="session")
def now() -> datetime:
    """The moment at which everything in a test happens: real, because TLS reads the real clock."""
    return datetime.now(UTC)


@pytest.fixture(scope="session")
def names() -> Names:
    return Names.parse(["gpufence.gpufence.svc", "localhost"], ["127.0.0.1", "::1"])


@pytest.fixture(scope="session")
def authority(now: datetime) -> KeyPair:
    return create_authority(now)


@pytest.fixture(scope="session")
def leaf(authority: KeyPair, names: Names, now: datetime) -> KeyPair:
    return issue_leaf(authority, names, now)

"""A policy that changes while a server runs: what it applies, rejects and reports."""

from __future__ import annotations

import pytest

from policies.policy import Policy
from reviewing import default_policy
from webhook.server.policy_reload import NoPolicyError, PolicyUnusableError, ReloadingPolicy


class Source:
    """A document that the test writes; ``bad`` stands for one that is no policy.

    Of one that starts with ``dead``, the reader has died.
    """

    def __init__(self) -> None:
        self.document = b"first"
        self.gone = False
        self.parsed = 0
        self.policies: dict[bytes, Policy] = {}

    def read(self) -> bytes:
        if self.gone:
            raise PolicyUnusableError("policy.yaml: does not exist")
        return self.document

    async def parse(self, document: bytes) -> Policy:
        self.parsed += 1
        if document.startswith(b"bad"):
            raise NoPolicyError(f"policy.yaml: {document.decode()}: unknown key")
        if document.startswith(b"dead"):
            raise PolicyUnusableError("policy.yaml: the process that reads it ended")
        return self.policies.setdefault(document, default_policy())


class Watched:
    def __init__(self, source: Source, policy: ReloadingPolicy) -> None:
        self.source = source
        self.policy = policy
        self.applied: list[Policy] = []
        self.counted: list[str] = []
        self.policy.followers.append(self.applied.append)
        self.policy.counters.append(self.counted.append)

    async def poll(self, document: bytes) -> None:
        self.source.document = document
        await self.policy.poll()


@pytest.fixture
async def watched() -> Watched:
    source = Source()
    return Watched(source, await ReloadingPolicy.load(source))


async def test_an_unchanged_document_is_not_loaded_again(watched: Watched) -> None:
    for _ in range(3):
        await watched.policy.poll()
    assert (watched.applied, watched.counted) == ([], [])
    assert watched.policy.generation == 1


async def test_a_changed_policy_is_applied(watched: Watched) -> None:
    await watched.poll(b"second")
    assert watched.applied == [watched.source.policies[b"second"]] == [watched.policy.current]
    assert watched.counted == ["applied"]
    assert watched.policy.generation == 2


async def test_the_last_valid_policy_stays_current_if_the_new_policy_is_rejected(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await watched.poll(b"bad: poolz")
    assert watched.policy.current is watched.source.policies[b"first"]
    assert watched.policy.problem == "policy.yaml: bad: poolz: unknown key"
    assert watched.counted == ["rejected"]
    assert [record.getMessage() for record in caplog.records] == ["policy rejected"]
    await watched.poll(b"bad: pools")
    assert watched.counted == ["rejected", "rejected"]


@pytest.mark.parametrize(("cure", "generation"), [(b"first", 1), (b"second", 2)])
async def test_a_valid_policy_clears_the_problem(
    watched: Watched, cure: bytes, generation: int
) -> None:
    await watched.poll(b"bad: poolz")
    await watched.poll(cure)
    assert watched.policy.problem == ""
    assert watched.policy.generation == generation


async def test_an_invalid_policy_is_parsed_once_until_it_changes(watched: Watched) -> None:
    for _ in range(3):
        await watched.poll(b"bad: poolz")
    assert watched.source.parsed == 2
    watched.source.gone = True
    await watched.policy.poll()
    watched.source.gone = False
    await watched.policy.poll()
    assert watched.policy.problem == "policy.yaml: bad: poolz: unknown key"


async def test_a_document_is_parsed_again_after_its_parser_process_died(watched: Watched) -> None:
    for _ in range(3):
        await watched.poll(b"dead")
    assert watched.source.parsed == 4
    assert watched.counted == ["rejected"]
    assert watched.policy.current is watched.source.policies[b"first"]


async def test_a_temporarily_missing_file_keeps_the_current_policy(watched: Watched) -> None:
    watched.source.gone = True
    await watched.policy.poll()
    assert watched.policy.problem == "policy.yaml: does not exist"
    watched.source.gone = False
    await watched.policy.poll()
    assert (watched.policy.problem, watched.policy.generation) == ("", 1)
    assert watched.applied == []


async def test_loading_an_invalid_policy_at_startup_raises_an_error() -> None:
    source = Source()
    source.document = b"bad"
    with pytest.raises(PolicyUnusableError):
        await ReloadingPolicy.load(source)

"""A policy that changes while a server runs: what it applies, rejects and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.policy import Policy
from policies.shipped import default_policy_text
from webhook.policy_reload import ReloadingPolicy
from webhook.tools.documents.document import InputError

FIRST = default_policy_text()
SECOND = FIRST.replace("name: nvidia", "name: second")
BAD = FIRST.replace("pools:", "poolz:")


class Watched:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.file.write_text(FIRST)
        self.policy = ReloadingPolicy(str(file))
        self.first = self.policy.current
        self.applied: list[Policy] = []
        self.counted: list[str] = []
        self.policy.followers.append(self.applied.append)
        self.policy.count = self.counted.append

    async def poll(self, text: str) -> str:
        """Write a document, and return why it is rejected."""
        self.file.write_text(text)
        try:
            await self.policy.poll()
        except InputError as error:
            return str(error)
        return ""


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "policy.yaml")


async def test_an_unchanged_document_is_not_loaded_again(watched: Watched) -> None:
    for _ in range(3):
        await watched.policy.poll()
    assert (watched.applied, watched.counted, watched.policy.generation) == ([], [], 1)


async def test_a_changed_policy_is_applied(watched: Watched) -> None:
    assert not await watched.poll(SECOND)
    assert watched.applied == [watched.policy.current]
    assert watched.policy.current.pools[0].name == "second"
    assert (watched.counted, watched.policy.generation) == (["applied"], 2)


async def test_an_invalid_policy_is_parsed_once_and_reported_until_it_changes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = await watched.poll(BAD)
    line = BAD[: BAD.index("poolz")].count("\n") + 1
    assert f"{watched.file}:{line}: spec.poolz: unknown field; did you mean pools?" in problem
    with monkeypatch.context() as patch:
        patch.setattr("webhook.policy_reload.read_policy", None)
        assert await watched.poll(BAD) == problem
    assert watched.policy.current is watched.first
    assert await watched.poll("kind: [")
    assert watched.counted == ["rejected", "rejected"]


@pytest.mark.parametrize(("cure", "generation"), [(FIRST, 1), (SECOND, 2)], ids=["old", "new"])
async def test_a_valid_policy_follows_an_invalid_one(
    watched: Watched, cure: str, generation: int
) -> None:
    assert await watched.poll(BAD)
    assert not await watched.poll(cure)
    assert watched.policy.generation == generation
    assert await watched.poll(BAD)


async def test_a_temporarily_missing_file_keeps_the_current_policy(watched: Watched) -> None:
    watched.file.unlink()
    with pytest.raises(InputError, match=r"policy.yaml: does not exist\. Check the path\."):
        await watched.policy.poll()
    assert not await watched.poll(FIRST)
    assert (watched.applied, watched.policy.generation) == ([], 1)


async def test_the_default_policy_stays() -> None:
    policy = ReloadingPolicy(None)
    await policy.poll()
    assert policy.generation == 1


def test_loading_an_invalid_policy_at_startup_raises_an_error(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("kind: [")
    with pytest.raises(InputError):
        ReloadingPolicy(str(file))

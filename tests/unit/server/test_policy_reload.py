"""A policy that changes while a server runs: what it applies, rejects and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.policy import Policy
from policies.shipped import default_policy_text
from webhook.documents.document import InputError
from webhook.server.policy_reload import ReloadingPolicy

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

    async def poll(self, text: str) -> None:
        self.file.write_text(text)
        await self.policy.poll()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "policy.yaml")


async def test_an_unchanged_document_is_not_loaded_again(watched: Watched) -> None:
    for _ in range(3):
        await watched.policy.poll()
    assert (watched.applied, watched.counted) == ([], [])
    assert watched.policy.generation == 1


async def test_a_changed_policy_is_applied(watched: Watched) -> None:
    await watched.poll(SECOND)
    assert watched.applied == [watched.policy.current]
    assert watched.policy.current.pools[0].name == "second"
    assert watched.counted == ["applied"]
    assert watched.policy.generation == 2


async def test_the_last_valid_policy_stays_current_if_the_new_policy_is_rejected(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await watched.poll(BAD)
    assert watched.policy.current is watched.first
    line = BAD[: BAD.index("poolz")].count("\n") + 1
    assert (
        f"{watched.file}:{line}: poolz: unknown field; did you mean pools?"
        in watched.policy.problem
    )
    assert watched.counted == ["rejected"]
    assert [record.getMessage() for record in caplog.records] == ["policy rejected"]
    await watched.poll("kind: [")
    assert watched.counted == ["rejected", "rejected"]


@pytest.mark.parametrize(("cure", "generation"), [(FIRST, 1), (SECOND, 2)], ids=["old", "new"])
async def test_a_valid_policy_clears_the_problem(
    watched: Watched, cure: str, generation: int
) -> None:
    await watched.poll(BAD)
    await watched.poll(cure)
    assert watched.policy.problem == ""
    assert watched.policy.generation == generation


async def test_an_invalid_policy_is_parsed_once_until_it_changes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.poll(BAD)
    problem = watched.policy.problem
    monkeypatch.setattr("webhook.server.policy_reload.read_policy", None)
    await watched.policy.poll()
    assert watched.policy.problem == problem


async def test_a_temporarily_missing_file_keeps_the_current_policy(watched: Watched) -> None:
    watched.file.unlink()
    await watched.policy.poll()
    assert watched.policy.problem == f"{watched.file}: does not exist. Check the path."
    await watched.poll(FIRST)
    assert (watched.policy.problem, watched.policy.generation) == ("", 1)
    assert watched.applied == []


async def test_an_invalid_policy_that_is_back_after_its_file_was_missing_is_reported(
    watched: Watched,
) -> None:
    await watched.poll(BAD)
    problem = watched.policy.problem
    watched.file.unlink()
    await watched.policy.poll()
    await watched.poll(BAD)
    assert watched.policy.problem == problem


async def test_the_default_policy_stays() -> None:
    policy = ReloadingPolicy(None)
    await policy.poll()
    assert (policy.generation, policy.problem) == (1, "")


def test_loading_an_invalid_policy_at_startup_raises_an_error(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("kind: [")
    with pytest.raises(InputError):
        ReloadingPolicy(str(file))

"""The policy that a process follows: which versions count, and what stays active."""

from __future__ import annotations

from typing import Any

import pytest

from policies.policy import Policy
from specs import default_spec
from webhook.active_policy import ActivePolicy, FencePolicyObject, PolicyMetadata

GOOD = default_spec()
SECOND = GOOD | {"pools": [GOOD["pools"][0] | {"name": "second"}]}
BAD: dict[str, Any] = {"poolz": []}


class Followed:
    """An active policy, and what its followers saw."""

    def __init__(self, fixed: Policy | None = None) -> None:
        self.policy = ActivePolicy("gpufence", fixed)
        self.applied: list[str] = []
        self.counted: list[bool] = []
        self.policy.followers.append(lambda policy: self.applied.append(policy.pools[0].name))
        self.policy.count = self.counted.append

    def put(self, spec: Any, generation: int, uid: str = "a") -> None:
        metadata = PolicyMetadata(name="gpufence", uid=uid, generation=generation)
        self.policy.put(FencePolicyObject(metadata, spec))


def test_without_an_object_no_policy_is_active_and_the_problem_says_what_to_do() -> None:
    followed = Followed()
    assert not followed.policy.known.is_set()
    assert followed.policy.problem == (
        "the cluster has no FencePolicy gpufence: create it with kubectl apply"
    )


def test_each_generation_is_applied_once() -> None:
    followed = Followed()
    for _ in range(3):  # status and labels change without the generation
        followed.put(GOOD, 1)
    followed.put(SECOND, 2)
    assert followed.applied == ["nvidia", "second"]
    assert followed.counted == [True, True]
    assert followed.policy.generation == 2


def test_a_new_object_with_the_generation_of_the_old_one_is_applied() -> None:
    followed = Followed()
    followed.put(GOOD, 1)
    followed.policy.remove("gpufence")
    followed.put(SECOND, 1, uid="b")
    assert followed.applied == ["nvidia", "second"]


@pytest.mark.parametrize("cure", [GOOD, SECOND], ids=["old", "new"])
def test_the_last_valid_policy_stays_while_the_object_is_invalid(cure: Any) -> None:
    followed = Followed()
    followed.put(GOOD, 1)
    followed.put(BAD, 2)
    assert followed.policy.current.pools[0].name == "nvidia"
    assert (followed.policy.generation, followed.policy.is_stale) == (1, True)
    assert followed.policy.problem.endswith("; the last valid policy stays active")
    followed.put(cure, 3)
    assert (followed.policy.generation, followed.policy.problem) == (3, "")
    assert followed.counted == [True, False, True]


def test_the_last_valid_policy_stays_when_the_object_is_deleted() -> None:
    followed = Followed()
    followed.put(GOOD, 1)
    followed.policy.remove("gpufence")
    assert followed.policy.current.pools
    assert "the cluster has no FencePolicy gpufence" in followed.policy.problem
    assert list(followed.policy.names()) == []

"""The policy that a process follows: which versions count, and what stays active."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters import FAST
from fake_apiserver import FakeApiServer, eventually
from policies.policy import Policy
from specs import default_spec
from webhook.active_policy import PATH as FENCE_POLICIES
from webhook.active_policy import ActivePolicy, FencePolicyObject, PolicyMetadata
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.reflector import Watches
from webhook.serve.replica import STALE_SECONDS, outdated

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


async def test_without_an_object_the_problem_says_what_is_known_of_it(tmp_path: Path) -> None:
    """Until the API server has answered, whether there is one is unknown."""
    api = FakeApiServer(FENCE_POLICIES)
    await api.start()
    api.errors[FENCE_POLICIES] = (503, "not yet")
    policy = ActivePolicy("gpufence")
    connection = KubeApi(kubeconfig(api.kubeconfig(tmp_path / "kubeconfig")))
    watches = Watches(connection, timing=FAST)
    policy.follow(watches)
    unread = "FencePolicy gpufence is not read yet: "
    assert policy.problem == f"{unread}the list is not complete"
    await watches.start()
    await eventually(lambda: policy.problem == f"{unread}not yet (HTTP 503)", "the reason")
    api.errors.clear()
    missing = "the cluster has no FencePolicy gpufence: create it with kubectl apply"
    await eventually(lambda: policy.problem == missing, "the list")
    assert policy.is_stale
    assert not policy.known.is_set()
    await watches.stop()
    await api.stop()


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
    assert followed.policy.is_stale
    assert list(followed.policy.names()) == []


def test_a_replica_gives_way_once_others_reach_an_api_server_that_it_does_not_hear() -> None:
    limit = STALE_SECONDS
    # By the last sign of the API server and the last review: only a review later than the limit.
    assert not outdated(None, limit * 2)
    assert not outdated(1000.0, 0.0)
    assert not outdated(1000.0, 1000.0 + limit - 1)
    assert outdated(1000.0, 1000.0 + limit).startswith("reviews arrive 300 s after the last sign")

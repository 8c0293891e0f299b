"""The one judgement on an object of a file, a dump or a cluster: verdict, changes, users.

Commands arrange what a judgement says. They do not compute a verdict, a user or a change of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.workload import Workload
from policies.policy import ALWAYS_EXCLUDED, Policy

_UNDECIDED = Decision(has_template=False)


class ContainerUser(NamedTuple):
    """The user of a container: what its Pod sets, without gpufence and with it.

    ``None`` stands for the user of the image.
    """

    container: str
    before: int | None
    after: int | None

    def __str__(self) -> str:
        before, after = (
            "the user of its image" if user is None else f"user {user}"
            for user in (self.before, self.after)
        )
        return f"container {self.container}: {before} -> {after}"


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """What an API server with gpufence does with one object.

    ``users`` has the user of each container of its Pods. ``error`` is the problem of a malformed
    object, and then there is no decision. ``bugs`` has a sentence for each rule that failed: if it
    enforces, there is no decision.
    """

    decision: Decision = _UNDECIDED
    users: tuple[ContainerUser, ...] = ()
    error: MalformedObjectError | None = None
    bugs: tuple[str, ...] = ()

    @property
    def is_decided(self) -> bool:
        return self.decision is not _UNDECIDED

    @property
    def mutations(self) -> tuple[str, ...]:
        """The rules that change the object."""
        return tuple(dict.fromkeys(self.decision.mutations))

    @property
    def other_users(self) -> tuple[ContainerUser, ...]:
        """The containers that gpufence gives another user."""
        return tuple(user for user in self.users if user.before != user.after)


def judge(
    read: Callable[[], Workload], policy: Policy, request: Request, facts: Facts
) -> Judgement:
    """Judge the object that ``read`` returns. No exception leaves this function."""
    try:
        found = read()
        if facts.defaults.get(request.namespace) and found.kind != "Pod":
            # API servers judge a workload as it is written, and its Pods with what they get.
            written = judge(read, policy, request, replace(facts, defaults={}))
            if not written.decision.allowed:
                return written
        before = [*_users(found)]
        decision = decide(found, policy, request, facts, excluded_namespaces=ALWAYS_EXCLUDED)
        # The engine has changed the Pods. Without operations, the API server stores none of it.
        after = [*_users(found)] if decision.operations else before
        decision.checked()
    except MalformedObjectError as error:
        return Judgement(error=error)
    except Exception as error:
        return Judgement(bugs=(_bug(error, ""),))
    users = dict.fromkeys(
        ContainerUser(name, old, new) for (name, old), (_, new) in zip(before, after, strict=True)
    )
    bugs = tuple(_bug(failure.error, failure.rule) for failure in decision.failures)
    return Judgement(decision, tuple(users), None, bugs)


def _bug(error: Exception, rule: str) -> str:
    names = getattr(error, "__notes__", ())
    what = rule or next(iter(names), "the decision")
    return f"{what} failed with {error!r}, which is a bug of gpufence: report it"


def _users(obj: Workload) -> Iterator[tuple[str, int | None]]:
    """Yield the name and the user of each container of the object's Pods."""
    for pod in obj.pods():
        for container in () if pod.devices_only else pod.containers:
            own = container.security_context.run_as_user
            yield container.name, pod.security_context.run_as_user if own is None else own

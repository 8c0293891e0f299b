"""Reads the cache of a kube-scheduler, which lags behind the API server.

The scheduler may bind a Pod to a Node that is already deleted, and does not know a new Node at
once. On SIGUSR2 it dumps its cache to its log (pkg/scheduler/backend/cache/debugger in Kubernetes).
"""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

from controlplane.poll import until

if TYPE_CHECKING:
    from controlplane.process import Process

KNOWN_WITHIN = 30.0

# A deleted Node stays in the cache, marked, as long as it has Pods.
_NODE = re.compile(r"Node name: (\S+)\s+Deleted: false")
# The dump of the nodes is complete when that of the queue, which follows, has begun.
_NODES, _QUEUE = '"Dump of cached NodeInfo"', '"Dump of scheduling queue"'


def nodes(scheduler: Process) -> set[str]:
    """Return the names of the Nodes that a running scheduler may bind Pods to.

    Raises:
        TimeoutError: it did not answer.
    """
    assert scheduler.pid is not None, "the scheduler is not started"
    before = scheduler.log.stat().st_size

    def dumped() -> str:
        with scheduler.log.open("rb") as log:
            log.seek(before)
            text = log.read().decode(errors="replace")
        return text.partition(_NODES)[2] if _QUEUE in text else ""

    os.kill(scheduler.pid, signal.SIGUSR2)
    return set(_NODE.findall(until(dumped, "the scheduler to dump its cache", KNOWN_WITHIN)))


def wait_for(scheduler: Process, names: set[str]) -> None:
    """Wait until the scheduler has seen all these Nodes.

    Raises:
        TimeoutError: it has not.
    """
    what = f"the scheduler to see the nodes {sorted(names)}"
    until(lambda: names <= nodes(scheduler), what, KNOWN_WITHIN)


def wait_for_none_of(scheduler: Process, names: set[str]) -> None:
    """Wait until the scheduler has seen the deletion of all these Nodes.

    Raises:
        TimeoutError: it has not.
    """
    what = f"the scheduler to see that the nodes {sorted(names)} are gone"
    until(lambda: names.isdisjoint(nodes(scheduler)), what, KNOWN_WITHIN)

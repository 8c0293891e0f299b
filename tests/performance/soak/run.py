"""What `make soak` runs: a replica at half of its capacity, while everything goes on around it.

    run.py MINUTES [DIRECTORY]

Its policy changes every 10 s, its certificate every 15 s, the cluster's nodes 167 times a second
(10,000 a minute), and clients misbehave in every way that abuse.py knows, 10,000 idle connections
among them. Every answer is compared with the engine's own. The exit status is 1 where one was
wrong or missing, or where memory or descriptors were not given back.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import date
from pathlib import Path

from bench import engine, reviews
from fake_apiserver import DEVICE_CLASSES, NAMESPACES, NODES, RUNTIME_CLASSES, FakeApiServer
from policies.document.model import parse_policy
from reviewing import encode, review, trespassing_pod
from soak import churn
from soak.abuse import Abuse
from soak.replica import replica, run
from soak.sampling import Record, quiet_seconds
from soak.traffic import Caller, Outcomes, Question, press, send
from webhook.admission.handler import Admission
from webhook.metrics.admission import Metrics

CONNECTIONS = 32
IDLE_CONNECTIONS = 10_000
_CAPACITY_SECONDS = 5.0


def questions() -> list[Question]:
    """Return reviews with every answer that either of the policies gives."""
    admissions = []
    for user in churn.POLICY_USERS:
        policy = parse_policy(churn.policy_document(user)).compile()
        admissions.append(Admission(policy, Metrics(policy, "soak"), date.today))
    asked = [
        (engine.PATHS[endpoint], reviews.body(case, endpoint))
        for case in ("gpu-pod", "plain-pod", "large-pod")
        for endpoint in reviews.endpoints(case)
    ]
    asked.append(("/validate", encode(review(trespassing_pod()))))
    asked.append(("/mutate", encode(review(trespassing_pod(), object={"kind": 1}))))
    return [
        Question(path, body, frozenset(engine.answer_of(each, path, body) for each in admissions))
        for path, body in asked
    ]


async def soak(minutes: float, directory: Path) -> Record:
    """Run for so many minutes, with what a run needs in the directory."""
    api = FakeApiServer(NODES, NAMESPACES, RUNTIME_CLASSES, DEVICE_CLASSES)
    await api.start()
    churn.put_nodes(api)
    flags = ("--register", "false", "--kubeconfig", api.kubeconfig(directory / "kubeconfig"))
    async with replica(directory, flags) as served:
        outcomes, context = Outcomes(), served.context()
        callers = [Caller(served.port, context, outcomes) for _ in range(CONNECTIONS)]
        asked = questions()
        most = await press(callers, asked, _CAPACITY_SECONDS)
        outcomes.taken()
        record = Record(minutes, most / 2, most, wrong=outcomes.wrong)
        changing = [
            asyncio.create_task(churn.policies(served.policy, 10)),
            asyncio.create_task(churn.certificates(served.certificates, served.authority, 15)),
            asyncio.create_task(churn.nodes(api, 167)),
            asyncio.create_task(_sample(record, served.pid, outcomes)),
        ]
        abuse = Abuse(served.port, context, IDLE_CONNECTIONS)
        misbehaving = asyncio.create_task(abuse.for_ever())
        quiet = quiet_seconds(minutes)
        await send(callers, asked, record.rate, minutes * 60 - quiet)
        misbehaving.cancel()
        await send(callers, asked, record.rate, quiet)
        failed = [task.exception() for task in changing if task.done()]
        for task in changing:
            task.cancel()
        if failed:
            raise RuntimeError(f"the soak itself failed: {failed}")
        for caller in callers:
            await caller.close()
        record.notes = {"opened by who misbehaves": abuse.opened}
    await api.stop()
    return record


async def _sample(record: Record, pid: int, outcomes: Outcomes) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(1)
        record.look(time.monotonic() - began, pid, *outcomes.taken())


def main(minutes: float, directory: Path) -> int:
    record = run(lambda temporary: soak(minutes, temporary))
    record.write(directory)
    memory = [sample.memory for sample in record.samples]
    print(
        f"capacity {record.capacity:.0f}/s, asked {record.rate:.0f}/s, {record.minutes:g} minutes"
    )
    print(*(f"{count} {name}" for name, count in record.totals().items()), sep=", ")
    print(
        f"memory {memory[0]:.0f} MiB at first, {max(memory):.0f} at most, {memory[-1]:.0f} at last"
    )
    print(*(f"{count:.0f} {name}" for name, count in record.notes.items()), sep=", ")
    for fault in record.faults():
        print("FAULT:", fault)
    return 1 if record.faults() else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: run.py MINUTES [DIRECTORY]")
    sys.exit(main(float(sys.argv[1]), Path(*sys.argv[2:]) if sys.argv[2:] else Path("build/soak")))

"""Implements `make soak`: a replica at half of its capacity while its surroundings change.

    python -m soak.run MINUTES [DIRECTORY]

The policy changes every 10 s, the certificate every 15 s, and the nodes 167 times a second (10,000
a minute). Clients misbehave in every way of abuse.py, with 10,000 idle connections. Every response
is compared with the engine's. The exit status is 1 if a response is wrong or missing, or if memory
or descriptors leak.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import date
from pathlib import Path

from bench import engine, reviews
from fake_apiserver import DEVICE_CLASSES, NAMESPACES, NODES, RUNTIME_CLASSES, FakeApiServer
from reviewing import encode, review, trespassing_pod
from soak import churn
from soak.abuse import Abuse
from soak.replica import replica, run, trusting
from soak.sampling import Record, quiet_seconds
from soak.traffic import Client, ExpectedReview, Outcomes, saturate, send
from specs import policy_of
from webhook.active_policy import PATH as FENCE_POLICIES
from webhook.serve.admission.handler import Admission
from webhook.serve.metrics.replica import Metrics

CONNECTIONS = 32
IDLE_CONNECTIONS = 10_000
_CAPACITY_SECONDS = 5.0


def expected_reviews() -> list[ExpectedReview]:
    """Return reviews with the responses under each of the policies."""
    admissions = []
    for user in churn.POLICY_USERS:
        policy = policy_of(churn.policy_spec(user))
        admissions.append(Admission(policy, Metrics(policy, "soak"), date.today))
    requests = [
        (engine.PATHS[endpoint], reviews.body(case, endpoint))
        for case in ("gpu-pod", "plain-pod", "large-pod")
        for endpoint in reviews.endpoints(case)
    ]
    requests.append(("/validate", encode(review(trespassing_pod()))))
    requests.append(("/mutate", encode(review(trespassing_pod(), object={"kind": 1}))))
    return [
        ExpectedReview(
            path,
            body,
            frozenset(engine.answer_of(admission, path, body) for admission in admissions),
        )
        for path, body in requests
    ]


async def soak(minutes: float, directory: Path) -> Record:
    """Run for `minutes`; temporary files go to the directory."""
    api = FakeApiServer(FENCE_POLICIES, NODES, NAMESPACES, RUNTIME_CLASSES, DEVICE_CLASSES)
    await api.start()
    churn.put_nodes(api)
    churn.put_policy(api, churn.POLICY_USERS[0])
    flags = ("--kubeconfig", api.kubeconfig(directory / "kubeconfig"))
    async with replica(directory, flags) as server:
        outcomes, context = Outcomes(), trusting(server)
        clients = [Client(server.port, context, outcomes) for _ in range(CONNECTIONS)]
        requests = expected_reviews()
        capacity = await saturate(clients, requests, _CAPACITY_SECONDS)
        outcomes.take()
        record = Record(minutes, capacity / 2, capacity, wrong=outcomes.wrong)
        tasks = [
            asyncio.create_task(churn.policies(api, 10)),
            asyncio.create_task(churn.certificates(server, 15)),
            asyncio.create_task(churn.nodes(api, 167)),
            asyncio.create_task(_sample(record, server.process.pid or 0, outcomes)),
        ]
        abuse = Abuse(server.port, context, IDLE_CONNECTIONS)
        abusing = asyncio.create_task(abuse.run())
        quiet = quiet_seconds(minutes)
        await send(clients, requests, record.rate, minutes * 60 - quiet)
        abusing.cancel()
        await send(clients, requests, record.rate, quiet)
        failed = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        if failed:
            raise RuntimeError(f"the soak itself failed: {failed}")
        for client in clients:
            await client.close()
        record.notes = {"connections opened by misbehaving clients": abuse.opened}
    await api.stop()
    return record


async def _sample(record: Record, pid: int, outcomes: Outcomes) -> None:
    start = time.monotonic()
    while True:
        await asyncio.sleep(1)
        record.sample(time.monotonic() - start, pid, *outcomes.take())


def main(minutes: float, directory: Path) -> int:
    record = run(lambda temporary: soak(minutes, temporary))
    record.write(directory)
    memory = [sample.memory for sample in record.samples]
    print(f"capacity {record.capacity:.0f}/s, rate {record.rate:.0f}/s, {record.minutes:g} minutes")
    print(*(f"{count} {name}" for name, count in record.totals().items()), sep=", ")
    print(
        f"memory {memory[0]:.0f} MiB at the start, "
        f"{max(memory):.0f} at most, {memory[-1]:.0f} at the end"
    )
    print(*(f"{count:.0f} {name}" for name, count in record.notes.items()), sep=", ")
    for problem in record.problems():
        print("PROBLEM:", problem)
    return 1 if record.problems() else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m soak.run MINUTES [DIRECTORY]")
    sys.exit(main(float(sys.argv[1]), Path(*sys.argv[2:]) if sys.argv[2:] else Path("build/soak")))

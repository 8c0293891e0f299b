"""One examination of one installation."""

from __future__ import annotations

from datetime import datetime

from certs.names import Names
from webhook.doctor import (
    cluster,
    registered,
    replicas,
    trials,
)
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line
from webhook.kube.client import KubeApi


async def diagnose(
    api: KubeApi, installed: Installation, names: Names | None, try_in: str, now: datetime
) -> list[Line]:
    """Return a line for each check, causes before their consequences.

    ``names`` are the names that the serving certificate must have. The trials create Pods as a dry
    run in namespace ``try_in``.

    Raises:
        ClusterError: a request failed.
    """
    return [
        cluster.check_version(installed),
        *cluster.check_policy(installed),
        *replicas.check_running(installed, now),
        *[line async for line in cluster.check_facts(api, installed)],
        *replicas.check_certificate(installed, names, now),
        *registered.check(installed, now.date()),
        await cluster.check_exempt_namespaces(api, installed),
        *[line async for line in trials.check(api, installed, try_in)],
    ]

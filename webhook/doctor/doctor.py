"""One examination of one installation."""

from __future__ import annotations

from datetime import datetime

from certs.names import Names
from webhook.doctor import (
    admission_policies,
    certificate,
    cluster_facts,
    exempt_namespaces,
    kubernetes,
    registered,
    running,
    trials,
)
from webhook.doctor import pools as policy
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
        kubernetes.check(installed),
        *policy.check(installed),
        *running.check(installed, now),
        *[line async for line in cluster_facts.check(api, installed)],
        *certificate.check(installed, names, now),
        await certificate.check_served(installed),
        *registered.check(installed),
        await exempt_namespaces.check(api, installed),
        *admission_policies.check(installed, now.date()),
        *[line async for line in trials.check(api, installed, try_in)],
    ]

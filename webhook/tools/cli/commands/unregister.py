"""``gpufence unregister``: the break-glass procedure."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import click

from webhook.controller.leader_election import pause
from webhook.controller.registrar import releases, unregister_policies
from webhook.controller.registrar import unregister as unregister_webhooks
from webhook.kube.client import KubeApi
from webhook.kube.errors import ClusterError
from webhook.tools.cli.commands import EXIT_FOUND
from webhook.tools.cli.options import (
    Connection,
    connection_options,
    release_name_option,
    release_namespace_option,
)

_LOOK_EVERY = 0.5


@click.command(
    epilog="""\b
When to use it: API servers reject GPU Pods, and you cannot fix gpufence at once. It deletes both
webhook configurations and the ValidatingAdmissionPolicies, so that API servers admit Pods without
gpufence. An annotation of the Lease keeps running replicas from writing them again; --undo removes
it.

\b
If you do not have gpufence available, run these commands. Without the first one, running replicas
write the configurations again within seconds.
  kubectl --namespace gpufence-system annotate --overwrite lease/gpufence \\
    gpufence.dev/unregistered="$(date -u +%FT%TZ)"
  kubectl delete --ignore-not-found mutatingwebhookconfiguration/gpufence \\
    validatingwebhookconfiguration/gpufence
  kubectl delete --ignore-not-found \\
    validatingadmissionpolicybinding/gpufence-{trespass,device-leak}{,-warn,-audit}

\b
Exit status:
  0  both configurations are deleted
  1  another release is registered, or replicas write the configurations again
  2  the cluster is not reachable

\b
Examples:
  gpufence unregister                        delete the configurations
  gpufence unregister --undo                 once gpufence is fixed
  gpufence unregister --context production --watch-seconds 60
""",
)
@connection_options
@release_namespace_option
@release_name_option("Name of both webhook configurations, and of the Lease.")
@click.option(
    "--watch-seconds",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Time in which to delete configurations that a replica writes again.",
)
@click.option("--undo", is_flag=True, help="Let replicas register again.")
def unregister(
    connection: Connection, namespace: str, name: str, watch_seconds: float, undo: bool
) -> int:
    """Remove the webhook configurations in an emergency."""

    async def work(api: KubeApi) -> bool:
        click.echo(f"Cluster: {await api.host()}")
        if undo:
            await _undo(api, namespace, name)
            return True
        return await break_glass(api, namespace, name, watch_seconds)

    return 0 if connection.run(work) else EXIT_FOUND


async def break_glass(api: KubeApi, namespace: str, name: str, seconds: float) -> bool:
    """Pause registration and delete the configurations; return whether that succeeds."""
    # The Lease comes first: a replica could be faster otherwise. Deletion does not depend on it.
    paused = False
    try:
        paused = await pause(api, namespace, name, datetime.now(UTC).isoformat(timespec="seconds"))
    except ClusterError as error:
        click.echo(f"Cannot keep replicas from registering again: {error}", err=True)
    else:
        state = "registration paused" if paused else "not found, so there is no replica to pause"
        click.echo(f"Lease {namespace}/{name}: {state}.")
    try:
        registered = await releases(api)
    except ClusterError:
        registered = {}
    deleted = await _delete(api, name)
    for kind, was_there in deleted.items():
        click.echo(f"{kind} {name}: {'deleted' if was_there else 'not found'}.")
    again = False
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_EVERY)
        for kind, was_there in (await _delete(api, name)).items():
            if was_there:
                again = True
                click.echo(f"{kind} {name}: written again by a replica, and deleted again.")
    if again and not paused:
        at = registered.get(name) or namespace
        cure = f"Add --namespace {at}" if at != namespace else "Find these replicas and stop them"
        click.echo(f"Replicas with another Lease write the configurations again. {cure}.", err=True)
        return False
    if registered and not any(deleted.values()):
        for release in sorted(registered):
            click.echo(f"Release {release} is still registered. Add --name {release}.", err=True)
        return False
    return True


async def _delete(api: KubeApi, name: str) -> dict[str, bool]:
    """Delete what API servers know of the release; return for each kind whether it was there.

    The webhook configurations go first, and also if the admission policies cannot be listed.
    """
    deleted = await unregister_webhooks(api, name)
    try:
        return deleted | await unregister_policies(api, name)
    except ClusterError as error:
        click.echo(f"The ValidatingAdmissionPolicies cannot be deleted: {error}", err=True)
        return deleted


async def _undo(api: KubeApi, namespace: str, name: str) -> None:
    if await pause(api, namespace, name, None):
        click.echo(f"Lease {namespace}/{name}: replicas register again within seconds.")
    else:
        click.echo(f"Lease {namespace}/{name}: not found, so replicas are not paused.")

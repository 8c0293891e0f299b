"""``gpufence unregister``: the break-glass."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.access import (
    context_option,
    kubeconfig_option,
    release_namespace_option,
    with_api,
)
from webhook.cli.registration_options import DEFAULT_NAME

if TYPE_CHECKING:
    from webhook.kubeapi import KubeApi

_LOOK_EVERY = 0.5


@click.command(
    epilog="""\b
When to use it: GPU Pods are refused, and gpufence cannot be mended at once. It deletes both webhook
configurations, so that API servers ask gpufence about nothing. Replicas that still run are told, by
an annotation of their Lease, not to write them again; --undo takes that back.

\b
Without gpufence at hand, the same is as follows. Without the first of the two, replicas that still
run write the configurations again within seconds.
  kubectl --namespace gpufence-system annotate --overwrite lease/gpufence \\
    gpufence.dev/unregistered="$(date -u +%FT%TZ)"
  kubectl delete --ignore-not-found mutatingwebhookconfiguration/gpufence \\
    validatingwebhookconfiguration/gpufence

\b
Examples:
  gpufence unregister                        now
  gpufence unregister --undo                 when gpufence is mended
  gpufence unregister --context production --watch-seconds 60
""",
)
@kubeconfig_option
@context_option
@release_namespace_option
@click.option(
    "--name",
    default=DEFAULT_NAME,
    show_default=True,
    metavar="NAME",
    help="The name of both webhook configurations, and of the Lease.",
)
@click.option(
    "--watch-seconds",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="How long to look whether a replica writes them again, and delete them again.",
)
@click.option("--undo", is_flag=True, help="Let replicas register again.")
def unregister(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    name: str,
    watch_seconds: float,
    undo: bool,
) -> None:
    """Take gpufence out of the API servers' way."""

    async def work(api: KubeApi) -> None:
        click.echo(f"The cluster of {await api.host()}:")
        if undo:
            await _undo(api, namespace, name)
        else:
            await _unregister(api, namespace, name, watch_seconds)

    with_api(kubeconfig, work, context)


async def _unregister(api: KubeApi, namespace: str, name: str, seconds: float) -> None:
    from webhook.cluster.errors import ClusterError
    from webhook.lease import pause
    from webhook.register import unregister

    # First the Lease, or a replica would be faster; but the glass breaks without it, too.
    try:
        told = await pause(api, namespace, name, datetime.now(UTC).isoformat(timespec="seconds"))
    except ClusterError as error:
        click.echo(f"Replicas could not be told not to register again: {error}", err=True)
    else:
        done = "told" if told else "no Lease, so no replica to tell"
        click.echo(f"Lease {namespace}/{name}: {done}.")
    for kind, was_there in (await unregister(api, name)).items():
        click.echo(f"{kind} {name}: {'deleted' if was_there else 'was not there'}.")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_EVERY)
        for kind, was_there in (await unregister(api, name)).items():
            if was_there:
                click.echo(f"{kind} {name}: was written again, and deleted again.")


async def _undo(api: KubeApi, namespace: str, name: str) -> None:
    from webhook.lease import pause

    if await pause(api, namespace, name, None):
        click.echo(f"Lease {namespace}/{name}: replicas register again, within seconds.")
    else:
        click.echo(f"Lease {namespace}/{name}: is not there, so nothing kept replicas from it.")

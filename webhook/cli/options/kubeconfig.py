"""The way to the cluster, for the commands that need one."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from webhook.cli.errors import InputError

if TYPE_CHECKING:
    from webhook.kube.client import KubeApi
    from webhook.kube.credentials import Load

T = TypeVar("T")

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The way to the cluster; without it, the service account inside of a Pod, and what "
    "kubectl would take outside.",
)

context_option = click.option(
    "--context", metavar="NAME", help="The kubeconfig's context; by default the current one."
)

release_namespace_option = click.option(
    "--namespace",
    "-n",
    default="gpufence-system",
    show_default=True,
    metavar="NAME",
    help="The namespace that gpufence runs in.",
)


def is_inside() -> bool:
    """Tell whether this runs in a Pod of a cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def access(path: Path | None, context: str | None = None) -> Load:
    """Return the way to the cluster that ``--kubeconfig`` says, and ``--context``."""
    from webhook.kube.credentials import in_cluster, kubeconfig

    inside = path is None and context is None and is_inside()
    return in_cluster() if inside else kubeconfig(path, context)


def with_api(
    path: Path | None, work: Callable[[KubeApi], Awaitable[T]], context: str | None = None
) -> T:
    """Connect, do the work, and return what came of it.

    Raises:
        InputError: the cluster could not be asked.
    """
    import asyncio

    from webhook.kube.client import KubeApi
    from webhook.kube.errors import ClusterError

    async def connected() -> T:
        api = KubeApi(access(path, context))
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        return asyncio.run(connected())
    except ClusterError as error:
        raise InputError([str(error)]) from error

"""``--kubeconfig`` and ``--context``: the connection to a cluster."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from webhook.cli.options.common import valid_name
from webhook.documents.errors import InputError

if TYPE_CHECKING:
    from webhook.kube.client import KubeApi
    from webhook.kube.credentials import Load

T = TypeVar("T")

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Path to the kubeconfig file. The default is the service account inside a Pod, and the "
    "file that kubectl uses elsewhere.",
)

context_option = click.option(
    "--context",
    metavar="NAME",
    help="Context of the kubeconfig file. The default is the current context.",
)

release_namespace_option = click.option(
    "--namespace",
    "-n",
    default="gpufence-system",
    show_default=True,
    callback=valid_name,
    metavar="NAME",
    help="Namespace of gpufence.",
)


def is_inside() -> bool:
    """Return whether this process runs in a Pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def access(path: Path | None, context: str | None = None) -> Load:
    """Return what loads the access to the cluster."""
    from webhook.kube.credentials import in_cluster, kubeconfig

    inside = path is None and context is None and is_inside()
    return in_cluster() if inside else kubeconfig(path, context)


def with_api(
    path: Path | None, work: Callable[[KubeApi], Awaitable[T]], context: str | None = None
) -> T:
    """Connect to the cluster, do the work, and return its result.

    Raises:
        InputError: the cluster is not reachable.
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

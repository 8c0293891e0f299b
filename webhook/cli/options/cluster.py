"""The options that name a cluster, and those that add its nodes to manifests."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from webhook.cli.options.common import valid_name
from webhook.documents.errors import InputError

# The client for the API server takes longer to import than a check without a cluster takes.
if TYPE_CHECKING:
    from policies.policy import Policy
    from webhook.cli.manifests.evaluate import Complete
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


class ClusterContext(NamedTuple):
    """``--nodes`` and ``--cluster``: the cluster that manifests are checked against."""

    nodes: str | None
    cluster: bool
    kubeconfig: Path | None
    context: str | None

    @contextmanager
    def facts(self, policy: Policy) -> Iterator[Complete]:
        """Provide a function that adds cluster facts to those about an object.

        Raises:
            InputError: the file or the cluster cannot be read.
        """
        if self.cluster:
            from webhook.cli.cluster_facts import live_facts

            with live_facts(access(self.kubeconfig, self.context), policy) as complete:
                yield complete
        elif self.nodes is not None:
            from webhook.cli.cluster_facts import facts_of_nodes

            yield facts_of_nodes(self.nodes, policy)
        else:
            yield lambda _request, facts, _obj: facts


_OPTIONS = (
    click.option(
        "--nodes",
        metavar="FILE",
        help="File with the cluster's nodes, as kubectl get nodes -o json prints them, or - for "
        "standard input.",
    ),
    click.option(
        "--cluster",
        is_flag=True,
        help="Read nodes, classes, claims and namespaces from the cluster.",
    ),
    kubeconfig_option,
    context_option,
)


def cluster_context_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which receives them as the argument ``cluster_context``."""

    @functools.wraps(command)
    def with_cluster_context(
        nodes: str | None,
        cluster: bool,
        kubeconfig: Path | None,
        context: str | None,
        **others: Any,
    ) -> Any:
        if cluster and nodes is not None:
            raise click.UsageError("--nodes and --cluster exclude each other.")
        if (kubeconfig or context) and not cluster:
            raise click.UsageError("--kubeconfig and --context need --cluster.")
        _reject_several_from_stdin(nodes, others)
        cluster_context = ClusterContext(nodes, cluster, kubeconfig, context)
        return command(cluster_context=cluster_context, **others)

    decorated: Callable[..., Any] = with_cluster_context
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _reject_several_from_stdin(nodes: str | None, others: Mapping[str, Any]) -> None:
    """Reject several arguments that read standard input: the first takes all of it."""
    given = {
        "--policy": [others["policy_choice"].path],
        "--nodes": [nodes],
        "the argument -": others.get("paths") or [others.get("subject")],
    }
    readers = [name for name, paths in given.items() if "-" in paths]
    if len(readers) > 1:
        raise click.UsageError(
            f"{' and '.join(readers)} both read standard input. Name a file for all but one."
        )

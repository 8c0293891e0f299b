"""``--nodes`` and ``--cluster``: the cluster that manifests are checked against."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from webhook.cli.options.kubeconfig import access, context_option, kubeconfig_option

if TYPE_CHECKING:
    from policies.policy import Policy
    from webhook.cli.manifests.evaluate import Complete


class ClusterContext(NamedTuple):
    """The values of the options."""

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
            from webhook.cli.cluster_facts.live_cluster import live_facts

            with live_facts(access(self.kubeconfig, self.context), policy) as complete:
                yield complete
        elif self.nodes is not None:
            from msgspec.structs import replace

            from webhook.cli.cluster_facts.nodes_file import read_nodes

            known = read_nodes(self.nodes, policy)
            yield lambda _request, facts, _obj: replace(
                facts, nodes=known.nodes, templates=known.templates
            )
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

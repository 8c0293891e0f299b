"""The options that say what manifests are judged beside: a file of nodes, or a live cluster."""

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
    """What the options said."""

    nodes: str | None
    cluster: bool
    kubeconfig: Path | None
    context: str | None

    @contextmanager
    def facts(self, policy: Policy) -> Iterator[Complete]:
        """Provide what completes the facts about an object.

        Raises:
            InputError: there is no such file or cluster, or it does not give what is asked of it.
        """
        if self.cluster:
            from webhook.cli.cluster_facts.live_cluster import live_facts

            with live_facts(access(self.kubeconfig, self.context), policy) as complete:
                yield complete
        elif self.nodes is not None:
            from msgspec.structs import replace

            from webhook.cli.cluster_facts.nodes_file import read_nodes

            index = read_nodes(self.nodes, policy)
            yield lambda _request, facts, _obj: replace(facts, nodes=index)
        else:
            yield lambda _request, facts, _obj: facts


_OPTIONS = (
    click.option(
        "--nodes",
        metavar="FILE",
        help="The cluster's nodes, as kubectl get nodes -o json prints them; - for the standard "
        "input.",
    ),
    click.option(
        "--cluster",
        is_flag=True,
        help="Ask the cluster itself for its nodes, classes, claims and namespaces.",
    ),
    kubeconfig_option,
    context_option,
)


def cluster_context_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one argument, ``cluster_context``."""

    @functools.wraps(command)
    def with_cluster_context(
        nodes: str | None,
        cluster: bool,
        kubeconfig: Path | None,
        context: str | None,
        **others: Any,
    ) -> Any:
        if cluster and nodes is not None:
            raise click.UsageError("--nodes and --cluster are two ways to know nodes: give one")
        if (kubeconfig or context) and not cluster:
            raise click.UsageError("--kubeconfig and --context say which cluster: add --cluster")
        _refuse_several_from_stdin(nodes, others)
        cluster_context = ClusterContext(nodes, cluster, kubeconfig, context)
        return command(cluster_context=cluster_context, **others)

    decorated: Callable[..., Any] = with_cluster_context
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _refuse_several_from_stdin(nodes: str | None, others: Mapping[str, Any]) -> None:
    """Refuse to read the standard input for several arguments: the first takes all of it."""
    given = {
        "--policy": [others["policy_choice"].path],
        "--nodes": [nodes],
        "the argument -": others.get("paths") or [others.get("subject")],
    }
    readers = [name for name, paths in given.items() if "-" in paths]
    if len(readers) > 1:
        raise click.UsageError(
            f"{' and '.join(readers)} would read the standard input, which is there once: "
            "name a file for all but one"
        )

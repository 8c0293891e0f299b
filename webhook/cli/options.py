"""Options and arguments of several commands: files, policies, clusters, names and times."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from policies.kubernetes.quantity import is_subdomain
from webhook.cli.policy.policy_choice import PolicyChoice, choose_policy
from webhook.documents.document import InputError
from webhook.documents.files import STDIN

# The client for the API server takes longer to import than a check without a cluster takes.
if TYPE_CHECKING:
    from policies.policy import Policy
    from webhook.cli.evaluate import Complete
    from webhook.kube.client import KubeApi
    from webhook.kube.credentials import Load

T = TypeVar("T")


class _File(click.Path):
    """A path, or ``-`` for standard input, which only one parameter can read.

    The reader reports files that do not exist or are not readable.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == STDIN and ctx is not None:
            readers = ctx.meta.setdefault(STDIN, [])
            readers += [] if param in readers else [param]
            if len(readers) > 1:
                names = " and ".join(map(_name, readers))
                raise click.UsageError(
                    f"{names} both read standard input. Name a file for all but one."
                )
        return super().convert(value, param, ctx)


def _name(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else "the argument -"


PATH = _File(readable=False)

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATH)


def valid_name(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Return the name of an object, or the names of a repeatable option, if they are valid."""
    for name in [value] if isinstance(value, str) else value or ():
        # A name becomes part of a URL, where a slash or a question mark would change the request.
        if not is_subdomain(name):
            raise click.BadParameter(
                f"{name!r} is not a valid name: use up to 253 lower-case letters, digits, '-' and "
                "'.', with a letter or a digit at both ends."
            )
    return value


def namespaced_name(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, str] | None:
    """Return the namespace and the name of an object."""
    if value is None:
        return None
    namespace, _, name = value.partition("/")
    if not namespace or not name:
        raise click.BadParameter(f"{value!r} is incomplete. Write {param.make_metavar(ctx)}.")
    return valid_name(ctx, param, namespace), valid_name(ctx, param, name)


def _choose_policy(
    ctx: click.Context, _param: click.Parameter, value: str | None
) -> PolicyChoice | None:
    return None if ctx.resilient_parsing else choose_policy(value)


policy_file_option = click.option(
    "--policy",
    "policy_path",
    type=PATH,
    metavar="FILE",
    help="Policy file. The default is gpufence's default policy.",
)

policy_option = click.option(
    "--policy",
    "policy_choice",
    type=PATH,
    metavar="FILE",
    callback=_choose_policy,
    help="Policy file. The default is the file that the environment variable GPUFENCE_POLICY "
    "names, or the field policy of the nearest .gpufence.yaml, from the working directory upwards; "
    "otherwise gpufence's default policy.",
)

namespace_option = click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Namespace of objects that do not set one.",
)

exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Skip files and directories below a PATH, by name (charts, '*.tmpl.yaml') or by relative "
    "path ('overlays/*/dev', 'base/**/test'). Repeatable. A file that PATH names is always read.",
)


# Clusters.

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
            from webhook.cli.node_files import facts_of_nodes

            yield facts_of_nodes(self.nodes, policy)
        else:
            yield lambda _request, facts, _obj: facts


_OPTIONS = (
    click.option(
        "--nodes",
        type=PATH,
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
        cluster_context = ClusterContext(nodes, cluster, kubeconfig, context)
        return command(cluster_context=cluster_context, **others)

    decorated: Callable[..., Any] = with_cluster_context
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


# Times.

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_SECONDS["h"] = 3600.0
_PART = r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


def parse_duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    """Parse a duration as Go writes them: ``90s``, ``1h30m``, ``8760h``.

    Source: Go, ``time.ParseDuration``. Negative durations are invalid here.
    """
    if value == "0":
        return timedelta(0)
    if not _DURATION.fullmatch(value):
        raise click.BadParameter(
            f"{value!r:.40} is not a duration; write it like 3s, 1m30s or 500ms"
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(value))
    return timedelta(seconds=seconds)


def parse_date(_ctx: click.Context, _param: click.Parameter, value: str | None) -> date | None:
    """Parse a date: ``2026-12-31``."""
    if value is None:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not a date. Write it as YYYY-MM-DD, for example 2026-12-31."
        ) from error

"""Options and arguments of several commands: files, policies, and clusters to decide on."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.profile_versions import NEWEST, OLDEST
from webhook.documents.document import InputError
from webhook.documents.files import STDIN, display_name
from webhook.documents.policy_files import load_policy, policy_name
from webhook.tools.cli.flags import (
    Decorator,
    as_argument,
    context_option,
    fence_policy_option,
    kubeconfig_option,
    name_option,
)

# The client for the API server takes longer to import than a check without a cluster takes.
if TYPE_CHECKING:
    from policies.policy import Policy
    from webhook.cluster.manifests import Complete
    from webhook.cluster.objects import Objects
    from webhook.documents.objects import Manifest
    from webhook.kube.credentials import Load
    from webhook.kube.writer import KubeWriter
    from webhook.tools.cli.evaluate import Result

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
                names = " and ".join(map(_title, readers))
                raise click.UsageError(
                    f"{names} both read standard input. Name a file for all but one."
                )
        return super().convert(value, param, ctx)


def _title(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else "the argument -"


PATH = _File(readable=False)


def warn(problem: str) -> None:
    click.echo(f"Warning: {problem}", err=True)


# Policies.

VARIABLE = "GPUFENCE_POLICY"


class PolicyChoice(NamedTuple):
    """A policy file, or ``None`` for the default policy, and the setting that names it.

    ``setting`` is empty where the command line names the file. In a cluster, the default is the
    FencePolicy of the name, or without a name the one that replicas follow.
    """

    path: str | None = None
    setting: str = ""
    fence_policy: str | None = None

    @property
    def title(self) -> str:
        """The policy's name in reports: ``policy.yaml, from GPUFENCE_POLICY``."""
        name = policy_name(self.path)
        return f"{name}, from {self.setting}" if self.setting else name

    def load(self) -> Policy:
        """Return the policy, and name it on standard error if the command line does not.

        Raises:
            InputError: the file cannot be read or is not a valid policy.
        """
        if self.setting:
            click.echo(f"Policy: {self.title}", err=True)
        return load_policy(self.path)

    async def in_cluster(
        self, api: KubeWriter, or_file: str = ", or name a policy file with --policy"
    ) -> tuple[str, Policy]:
        """Return a policy and its title: of the file, or else of the FencePolicy.

        ``or_file`` ends the remediation if there is none.

        Raises:
            InputError: the policy is invalid, or the cluster does not say which one it follows.
        """
        from webhook.tools.followed_policy import cluster_policy

        if self.path is not None:
            return self.title, self.load()
        name, policy = await cluster_policy(api, self.fence_policy, or_file)
        click.echo(f"Policy: FencePolicy {name}", err=True)
        return f"FencePolicy {name}", policy


def _choose_policy(
    ctx: click.Context, _param: click.Parameter, value: str | None
) -> PolicyChoice | None:
    if ctx.resilient_parsing:
        return None
    if value is None and (named := os.environ.get(VARIABLE)):
        if named != STDIN and not os.path.lexists(named):
            problem = f"{display_name(named)} does not exist. Check the path, or unset the variable"
            raise InputError([f"{VARIABLE}: {problem}."])
        return PolicyChoice(named, VARIABLE)
    return PolicyChoice(value)


def _policy_option(otherwise: str) -> Decorator:
    return click.option(
        "--policy",
        "policy_choice",
        type=PATH,
        metavar="FILE",
        callback=_choose_policy,
        help="Policy file. The default is the file that the environment variable GPUFENCE_POLICY "
        f"names; otherwise {otherwise}.",
    )


policy_option = _policy_option("gpufence's default policy")


def _in_cluster(policy_choice: PolicyChoice, fence_policy: str | None) -> PolicyChoice:
    if fence_policy is None:
        return policy_choice
    if policy_choice.path is not None and not policy_choice.setting:
        raise click.UsageError("--policy and --fence-policy exclude each other.")
    return PolicyChoice(fence_policy=fence_policy)


cluster_policy_options = as_argument(
    "policy_choice",
    _in_cluster,
    _policy_option(
        "the FencePolicy that replicas follow, or without a cluster gpufence's default policy"
    ),
    fence_policy_option,
)
"""``--policy`` and ``--fence-policy``, as one argument."""

exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Skip files and directories below a PATH, by name (charts, '*.tmpl.yaml') or by relative "
    "path ('overlays/*/dev', 'base/**/test'). Repeatable. A file that PATH names is always read.",
)


quiet_option = click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="In text, show only findings and errors. Show no progress.",
)


# Clusters.


class Connection(NamedTuple):
    """``--kubeconfig`` and ``--context``: how a command reaches its cluster."""

    kubeconfig: Path | None
    context: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether neither option is set."""
        return self.kubeconfig is None and self.context is None

    def load(self) -> Load:
        """Return what loads the access to the cluster."""
        from webhook.kube.kubeconfig import access

        return access(self.kubeconfig, self.context)

    def run(self, work: Callable[[KubeWriter], Awaitable[T]]) -> T:
        """Connect to the cluster, do the work, and return its result.

        Raises:
            InputError: the cluster is not reachable.
        """
        from webhook.kube.writer import KubeWriter

        async def connected() -> T:
            connection = KubeWriter(self.load())
            try:
                return await work(connection)
            finally:
                await connection.close()

        return _run(connected())


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    from webhook.kube.errors import ClusterError

    try:
        return asyncio.run(work)
    except ClusterError as error:
        raise InputError([str(error)]) from error


def run_on(
    connection: Connection,
    dump: str | None,
    work: Callable[[Objects], Coroutine[Any, Any, T]],
    is_shared: Callable[[str], bool],
    minor: int | None = None,
) -> T:
    """Return what ``work`` makes of the objects of a cluster, or of a dump of Kubernetes 1.minor.

    Collections whose path ``is_shared`` accepts are listed once, for several readers.

    Raises:
        InputError: the cluster or the dump cannot be read.
    """
    from webhook.cluster.objects import Dump, LiveObjects
    from webhook.devices.nodes import NODES
    from webhook.documents.document import raise_errors
    from webhook.tools.cli.manifests import no_nodes, read_file

    if dump is None:
        return connection.run(lambda api: work(LiveObjects(api, is_shared)))
    manifests = read_file(dump)
    raise_errors((manifest.document, manifest.error) for manifest in manifests)
    objects = Dump(display_name(dump), manifests, minor)
    if not objects.has(NODES):
        raise no_nodes(dump, "kubectl get --all-namespaces -o json nodes,namespaces,pods,...")
    return _run(work(objects))


connection_options = as_argument("connection", Connection, kubeconfig_option, context_option)


def _minor_version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Parse a version of Kubernetes."""
    if value is None:
        return None
    found = re.fullmatch(r"v?1\.(\d{1,4})(\.\d+)?([-+].*)?", value)
    if found is None or int(found[1]) < OLDEST:
        raise click.BadParameter(f"{value!r} is not a version of Kubernetes from 1.{OLDEST} on.")
    return int(found[1])


version_option = click.option(
    "--kubernetes-version",
    callback=_minor_version,
    metavar="VERSION",
    help="Version of Kubernetes whose Pod Security counts, such as 1.36, unless the policy pins "
    f"one. [default: 1.{NEWEST}, or that of the cluster]",
)


class Evaluation:
    """What decisions on manifests depend on: a policy, a namespace, and a cluster."""

    def __init__(
        self,
        policy_choice: PolicyChoice,
        namespace: str,
        nodes: str | None,
        kubernetes_version: int | None,
        cluster: bool,
        kubeconfig: Path | None,
        context: str | None,
    ) -> None:
        if cluster and nodes is not None:
            raise click.UsageError("--nodes and --cluster exclude each other.")
        if cluster and kubernetes_version is not None:
            raise click.UsageError("--kubernetes-version and --cluster exclude each other.")
        self._minor = kubernetes_version
        self.policy_choice = policy_choice
        self.request = Request(namespace=namespace, today=datetime.now(UTC).date())
        self.nodes = nodes
        self._connection = optional_connection(
            cluster, kubeconfig, context, policy_choice.fence_policy
        )

    @contextmanager
    def facts(self, policy: Policy) -> Iterator[Complete]:
        """Provide a function that adds cluster facts to those about an object.

        Raises:
            InputError: the file or the cluster cannot be read.
        """
        if self._connection is not None:
            from webhook.tools.cli.cluster_facts import live_facts

            with live_facts(self._connection.load(), policy) as complete:
                yield complete
            return
        of_nodes: Complete | None = None
        if self.nodes is not None:
            from webhook.cluster.files import facts_of_nodes
            from webhook.tools.cli.manifests import no_nodes, read_file

            of_nodes = facts_of_nodes(read_file(self.nodes), policy, warn)
            if of_nodes is None:
                raise no_nodes(self.nodes)

        def known(request: Request, facts: Facts, obj: JSONObject) -> Facts:
            facts = of_nodes(request, facts, obj) if of_nodes else facts
            return replace(facts, kubernetes=self._minor) if self._minor else facts

        yield known

    def load_policy(self) -> tuple[str, Policy]:
        """Return the policy and its title: with --cluster, by default the one it follows.

        Raises:
            InputError: the policy is invalid, or the cluster cannot be read.
        """
        choice = self.policy_choice
        if self._connection is None or choice.path is not None:
            return choice.title, choice.load()
        return self._connection.run(choice.in_cluster)

    def results(self, policy: Policy, manifests: Sequence[Manifest]) -> list[Result]:
        """Return a result for each object.

        Raises:
            InputError: the file or the cluster cannot be read.
        """
        from webhook.tools.cli.evaluate import evaluate

        with self.facts(policy) as complete:
            return list(evaluate(manifests, policy, self.request, complete))


def optional_connection(
    cluster: bool, kubeconfig: Path | None, context: str | None, fence_policy: str | None = None
) -> Connection | None:
    """Return the connection that ``--cluster`` requests; None without it."""
    connection = Connection(kubeconfig, context)
    if not cluster and not (connection.is_default and fence_policy is None):
        raise click.UsageError("--kubeconfig, --context and --fence-policy need --cluster.")
    return connection if cluster else None


evaluation_options = as_argument(
    "evaluation",
    Evaluation,
    cluster_policy_options,
    name_option(
        "--namespace", "-n", default="default", text="Namespace of objects that do not set one."
    ),
    click.option(
        "--nodes",
        type=PATH,
        metavar="FILE",
        help="File with the cluster's nodes, as kubectl get nodes -o json prints them, or - for "
        "standard input.",
    ),
    version_option,
    click.option(
        "--cluster",
        is_flag=True,
        help="Read nodes, classes, claims, namespaces and the policy from the cluster.",
    ),
    kubeconfig_option,
    context_option,
)

"""``gpufence policy``: show, validate, compare and discover policies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from policies.doubts import doubts
from policies.facts import Request
from policies.kubernetes.objects import JSONObject
from policies.shipped import PRESETS, default_policy_text, preset_text
from webhook.cluster.needs import needed_facts
from webhook.cluster.state import ClusterState
from webhook.documents.document import InputError
from webhook.documents.files import valid_documents
from webhook.documents.policy_files import (
    policy_name,
    read_policy,
    read_policy_text,
)
from webhook.tools.audit.stack import DAEMON_SETS, of_a_network, unreached
from webhook.tools.cli.commands import EXIT_BUG, EXIT_FOUND, EXIT_INPUT, SuggestingGroup
from webhook.tools.cli.discover.accelerators import is_of_a_vendor
from webhook.tools.cli.discover.drafts import draft_of, nodes_of
from webhook.tools.cli.discover.text import policy_text
from webhook.tools.cli.evaluate import evaluate
from webhook.tools.cli.flags import (
    context_option,
    fence_policy_option,
    kubeconfig_option,
)
from webhook.tools.cli.manifests import read_file, read_manifests
from webhook.tools.cli.options import (
    PATH,
    Connection,
    PolicyChoice,
    connection_options,
    optional_connection,
    run_on,
    warn,
)
from webhook.tools.cli.report.output import (
    Output,
    check_outputs,
    output_option,
    reading,
    write_reports,
)
from webhook.tools.exceptions import useless_exceptions
from webhook.tools.platforms import Found, found, platforms_of
from webhook.wording import counted

if TYPE_CHECKING:
    from webhook.cluster.objects import Objects
    from webhook.kube.client import KubeApi
    from webhook.tools.cli.policy_diff.workloads import EffectsByName


@click.group(cls=SuggestingGroup)
def policy() -> None:
    """Show and validate policies (kind: FencePolicy)."""


@policy.command(
    epilog="""\b
Examples:
  gpufence policy show > policy.yaml
  gpufence policy show --preset amd > policy.yaml
""",
)
@click.option(
    "--preset",
    type=click.Choice(sorted(preset.stem for preset in PRESETS.iterdir())),
    help="Show the preset of a platform, a vendor or a scheduler: a policy to start from.",
)
def show(preset: str | None) -> None:
    """Print gpufence's default policy, with its comments."""
    click.echo(default_policy_text() if preset is None else preset_text(preset), nl=False)


@policy.command(
    epilog="""\b
Exit status:
  0  the policy is valid
  1  with --strict, it is valid, and its author likely means something else
  2  the policy is invalid: standard error says where, why, and what is accepted

\b
Examples:
  gpufence policy validate policy.yaml
  gpufence policy show | gpufence policy validate -
  gpufence policy validate --cluster policy.yaml
""",
)
@click.argument("file")
@click.option(
    "--cluster",
    is_flag=True,
    help="Warn of a policy that replicas do not follow, and of pools whose labels no node and no "
    "node template of the cluster has.",
)
@click.option(
    "--strict", is_flag=True, help="Fail if a warning is about what the policy alone says."
)
@fence_policy_option
@kubeconfig_option
@context_option
def validate(
    file: str,
    cluster: bool,
    strict: bool,
    fence_policy: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> int:
    """Validate a policy; FILE may be - for standard input."""
    connection = optional_connection(cluster, kubeconfig, context, fence_policy)
    text = read_policy_text(file)
    policy = read_policy(policy_name(file), text)
    [document] = valid_documents(file, text)
    name = document.value["metadata"]["name"]
    pools = [pool.name for pool in policy.pools]
    names = ", ".join(pools)
    click.echo(f"{policy_name(file)}: valid, with {counted(len(pools), 'pool')}: {names}")
    if connection is None:
        problem = f"whether replicas follow FencePolicy {name} is not checked"
        click.echo(f"Note: {problem}. Use --cluster.", err=True)
    found = [*doubts(policy)]
    for doubt in found:
        warn(f"{doubt}.")
    if policy.unenforced:
        warn(f"{policy.unenforced}.")
    for index, problem in useless_exceptions(policy, datetime.now(UTC).date()):
        cure = "Remove it, or change it"
        warn(f"spec.exceptions[{index}] {problem}. {cure}.")
    for fact, consequence in needed_facts(policy).items():
        # The others are needed by every policy, or by what is the default.
        if fact == "namespaces" or (
            fact == "runtimeclasses" and any(pool.runtime_class for pool in policy.pools)
        ):
            without = f"without the {fact} of the cluster, {consequence}"
            cure = "Keep cluster facts on (clusterFacts in the chart), and check with --cluster"
            warn(f"{without}. {cure}.")
    if connection is not None:
        from webhook.cluster.listed import list_state
        from webhook.cluster.objects import LiveObjects, Reader
        from webhook.tools.audit.pools import label_problems
        from webhook.tools.followed_policy import followed

        try:
            followed_name = fence_policy or connection.run(followed)
        except InputError as error:
            warn(str(error))
        else:
            if name != followed_name:
                problem = f"replicas do not follow FencePolicy {name}, but {followed_name}"
                warn(f"{problem}. Set metadata.name to {followed_name}.")
        known = connection.run(lambda api: list_state(Reader(LiveObjects(api))))
        for label_problem in label_problems(policy, known.nodes.index, known.templates):
            warn(f"{label_problem.problem}. {label_problem.remediation}.")
    return EXIT_FOUND if strict and found else 0


@policy.command(
    epilog="""\b
Exit status:
  0   the policies are equal, with defaults
  1   a field changed, with an effect or with none that a compared Pod shows
  2   a policy, a manifest or the cluster cannot be read; an object that is malformed is named,
      and all others are compared
  70  gpufence has failed at an object, which is a bug; all others are compared

\b
Examples:
  gpufence policy diff policy.yaml new.yaml
  git show main:policy.yaml | gpufence policy diff - policy.yaml
  gpufence policy diff --cluster new.yaml
  gpufence policy diff --manifests deploy/ --output markdown policy.yaml new.yaml > comment.md
""",
)
@click.argument("policies", nargs=-1, required=True, metavar="[OLD] NEW", type=PATH)
@click.option(
    "--manifests",
    multiple=True,
    type=PATH,
    metavar="PATH",
    help="Compare the results for these manifests as well: a file or a directory. Repeatable.",
)
@click.option(
    "--dump",
    type=PATH,
    metavar="FILE",
    help="Compare the results for the workloads in what kubectl get -o json printed.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Compare the results for the workloads of the cluster. OLD is the live policy if you "
    "leave it out.",
)
@fence_policy_option
@kubeconfig_option
@context_option
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show every field, every workload and more examples; in text, with their Pods.",
)
@output_option("diff")
def diff(
    policies: tuple[str, ...],
    manifests: tuple[str, ...],
    dump: str | None,
    cluster: bool,
    fence_policy: str | None,
    kubeconfig: Path | None,
    context: str | None,
    verbose: bool,
    outputs: Sequence[Output],
) -> int:
    """Show the fields of a policy that change, and what follows for Pods.

    OLD and NEW are policy files, or - for standard input. Both policies decide on Pods about their
    fields, and on the workloads that you name. The report has a line for each consequence, and the
    smallest examples. It says that the policies decide alike only if they are equal after
    normalization.
    """
    from webhook.tools.cli.policy_diff.comparison import compare
    from webhook.tools.cli.policy_diff.workloads import Skipped, in_cluster, in_manifests

    connection = optional_connection(cluster, kubeconfig, context, fence_policy)
    if len(policies) > 2 or (len(policies) == 1 and connection is None):
        raise click.UsageError("Name two policies. With --cluster, OLD is the live one by default.")
    if len(policies) == 2 and fence_policy is not None:
        raise click.UsageError("--fence-policy names OLD. Leave out one of the files.")
    if connection is not None and dump is not None:
        raise click.UsageError("--dump and --cluster exclude each other.")
    check_outputs(outputs, [*policies, *manifests, dump])
    loaded = [PolicyChoice(path).load() for path in policies]
    if connection is not None and len(loaded) == 1:
        live_choice = PolicyChoice(fence_policy=fence_policy)
        _, live = connection.run(lambda api: live_choice.in_cluster(api, ", or name OLD"))
        loaded.insert(0, live)
    today, read = datetime.now(UTC).date(), read_manifests(manifests) if manifests else []
    skipped = Skipped()
    workloads = [
        in_manifests(evaluate(read, each, Request(today=today)), skipped) for each in loaded
    ]
    if connection is not None or dump is not None:
        source = connection or Connection(None)

        async def work(objects: Objects) -> list[EffectsByName]:
            return await in_cluster(objects, loaded, today, skipped)

        found = run_on(source, dump, work, lambda _path: True)
        workloads = [own | more for own, more in zip(workloads, found, strict=True)]
    (old, new), (before, after) = loaded, workloads
    report = compare(old, new, today, before, after)
    notes = [*report.notes, *(f"Not compared: {each}" for each in skipped.sentences)]
    write_reports("diff", report._replace(notes=notes, is_verbose=verbose), outputs)
    if skipped.is_bug:
        return EXIT_BUG
    if skipped.is_malformed:
        return EXIT_INPUT
    return 0 if report.is_alike else EXIT_FOUND


@policy.command(
    epilog="""\b
Exit status:
  0  a policy was written; its first comment lists what is inconsistent about the nodes
  2  no node offers devices of a known vendor, or the cluster cannot be read

\b
Examples:
  gpufence policy discover > policy.yaml
  kubectl get nodes,daemonsets -A -o json | gpufence policy discover --nodes -
""",
)
@click.option(
    "--nodes",
    metavar="FILE",
    help="File with the cluster's nodes, as kubectl get -o json prints them, or - for standard "
    "input. Objects that say what nodes will be (NodePools, MachineDeployments, and others), "
    "DeviceClasses, ResourceSlices and DaemonSets in it count as well.",
)
@connection_options
def discover(nodes: str | None, connection: Connection) -> None:
    """Write a policy for the nodes of a cluster.

    The policy has a pool for each accelerator model, by the resources, labels and taints of the
    nodes. If an autoscaler adds nodes (Karpenter, Cluster API), the pools use labels that it knows
    in advance. Warnings name the DaemonSets of the GPU stack that taints keep off GPU nodes.
    Without --nodes, gpufence reads the cluster. To see what the policy would deny in a
    cluster, run gpufence adopt.
    """
    if nodes is not None and not connection.is_default:
        raise click.UsageError("--nodes excludes --kubeconfig and --context.")
    if nodes is None:
        from webhook.cluster.listed import list_state
        from webhook.cluster.objects import LiveObjects, Reader

        async def read(api: KubeApi) -> tuple[ClusterState, list[JSONObject], list[Found]]:
            reader = Reader(LiveObjects(api), progress)
            state = await list_state(reader)
            platforms = await platforms_of(reader, [*state.namespaces.names()])
            sets = await reader.read(DAEMON_SETS, lambda item: item)
            return state, sets or [], platforms

        with reading(enabled=True) as progress:
            state, daemon_sets, platforms = connection.run(read)
    else:
        from webhook.cluster.files import state_of
        from webhook.tools.cli.manifests import no_nodes

        manifests = read_file(nodes)
        state = state_of(manifests)
        if not (len(state.nodes) or state.templates):
            raise no_nodes(nodes)
        objects = [each.value for each in manifests if each.value]
        daemon_sets = [obj for obj in objects if obj.get("kind") == "DaemonSet"]
        platforms = [*found((), {}, objects)]
    drafted = draft_of(state)
    for finding in drafted.findings:
        click.echo(f"Warning: {finding}.", err=True)
    index = state.nodes.index
    problems = [
        *unreached(daemon_sets, nodes_of(drafted, index), index),
        *of_a_network(is_of_a_vendor, state),
    ]
    for problem in problems:
        click.echo(f"Warning: {problem}.", err=True)
    for platform in platforms:
        if not platform.namespace:
            click.echo(f"Warning: {platform.problem}. {platform.remediation}.", err=True)
    namespaces = frozenset(state.namespaces.names()) if nodes is None else None
    exempt = [each.namespace for each in platforms if each.namespace]
    text = policy_text(drafted, namespaces, platforms=exempt)
    # What is printed must be a valid policy, whatever the labels and taints of the nodes are.
    read_policy("the discovered policy", text)
    click.echo(text, nl=False)

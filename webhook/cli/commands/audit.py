"""``gpufence audit``: the decisions of a policy on the workloads of a live cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from webhook.audit.cluster_audit import Audit, Progress
from webhook.audit.cluster_audit import audit as run
from webhook.audit.policy_reports import publish
from webhook.cli.commands import EXIT_FOUND
from webhook.cli.evaluate import Result
from webhook.cli.options import (
    context_option,
    kubeconfig_option,
    namespaced_name,
    policy_option,
    with_api,
)
from webhook.cli.policy.policy_choice import PolicyChoice
from webhook.cli.report.content import AuditReport, results_of
from webhook.cli.report.output import (
    Output,
    check_outputs,
    color_option,
    output_option,
    write_reports,
)
from webhook.cli.report.terminal import Color, reading
from webhook.documents.document import InputError
from webhook.documents.policy_files import load_policy, policy_of_release
from webhook.kube.client import KubeApi


@click.command(
    epilog="""\b
Exit status:
  0    no findings that fail the audit (--fail-on)
  1    at least one such finding
  2    the cluster is not reachable, a PolicyReport cannot be written, or invalid usage

\b
Examples:
  gpufence audit
  gpufence audit --policy-of gpufence-system/gpufence --context production
  gpufence audit --output html=audit.html --output json=audit.json --quiet
  gpufence audit --policy-reports --quiet
""",
)
@policy_option
@click.option(
    "--policy-of",
    callback=namespaced_name,
    metavar="NAMESPACE/NAME",
    help="Use the policy of an installed release: gpufence-system/gpufence.",
)
@kubeconfig_option
@context_option
@output_option("audit")
@color_option
@click.option(
    "--quiet", "-q", is_flag=True, help="In text, show only findings and errors. Show no progress."
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "enforce", "warn"]),
    default="enforce",
    show_default=True,
    help="Findings that fail the audit: only enforced findings, warnings as well, or none.",
)
@click.option(
    "--policy-reports",
    is_flag=True,
    help="Write the findings to the cluster as PolicyReports, if it has that kind.",
)
def audit(
    policy_choice: PolicyChoice,
    policy_of: tuple[str, str] | None,
    kubeconfig: Path | None,
    context: str | None,
    outputs: Sequence[Output],
    color: Color,
    quiet: bool,
    fail_on: str,
    policy_reports: bool,
) -> int:
    """Audit a live cluster: what the policy denies or changes among the existing workloads.

    gpufence checks every workload and every bare Pod as if it were created now, and reports each
    finding once, for the topmost owner. It also shows the pools: which Pods hold which devices,
    which devices are free, which Pods run on GPU nodes without a device request, and which nodes
    lack the taint or the labels of the pool. Resources that the account cannot list are skipped and
    reported. The audit is read-only, except for --policy-reports.
    """
    if policy_of is not None and policy_choice.is_explicit:
        raise click.UsageError("--policy and --policy-of exclude each other.")
    now = datetime.now(UTC)

    async def work(api: KubeApi) -> tuple[Audit, str]:
        with reading(enabled=not quiet) as progress:
            return await _audit(api, policy_choice.path, policy_of, now, progress)

    check_outputs(outputs, [policy_choice.path, kubeconfig])
    name = policy_choice.title if policy_of is None else "/".join(policy_of)
    result, host = with_api(kubeconfig, work, context)
    results = list(results_of(result))
    report = AuditReport(name, now, quiet, results=results, audit=result, cluster=host)
    write_reports("audit", report, outputs, color)
    if policy_reports:  # Last, so that a failure does not hide the report.
        with_api(kubeconfig, partial(_publish, result=result, now=now), context)
    return EXIT_FOUND if _counts(results, fail_on) else 0


def _counts(results: Iterable[Result], fail_on: str) -> bool:
    """Return whether a finding fails the audit."""
    counting = {"never": (), "enforce": ("enforce",), "warn": ("enforce", "warn")}[fail_on]
    return any(finding.action in counting for result in results for finding in result.findings)


async def _audit(
    api: KubeApi,
    policy_path: str | None,
    policy_of: tuple[str, str] | None,
    now: datetime,
    progress: Progress,
) -> tuple[Audit, str]:
    """Return the audit, and the name of the cluster."""
    if policy_of is None:
        policy = load_policy(policy_path)
    else:
        namespace, name = policy_of
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}-policy"
        policy = policy_of_release(namespace, name, await api.read(path))
    return await run(api, policy, now.date(), progress), await api.host()


async def _publish(api: KubeApi, result: Audit, now: datetime) -> None:
    """Write the findings to the cluster.

    Raises:
        ClusterError: the account may not write them, or the cluster is not reachable.
        InputError: some reports conflict with existing objects of the same names.
    """
    published = await publish(api, result, now)
    click.echo(published.summary, err=True)
    if published.conflicts:
        raise InputError(published.conflicts)

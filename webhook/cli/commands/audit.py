"""``gpufence audit``: what a policy says of everything that is in a cluster now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.errors import EXIT_FOUND, InputError
from webhook.cli.options.common import policy_option
from webhook.cli.options.kubeconfig import context_option, kubeconfig_option, with_api
from webhook.cli.options.outputs import (
    color_option,
    output_option,
    reject_overwriting_inputs,
)
from webhook.cli.report.writer import Output, report_writer

if TYPE_CHECKING:
    from policies.policy import Policy
    from webhook.audit.cluster_audit import Audit
    from webhook.cli.manifests.evaluate import Result
    from webhook.cli.policy.policy_choice import PolicyChoice
    from webhook.cli.report.terminal import Color
    from webhook.kube.client import KubeApi


def _policy_of(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[str, str] | None:
    from webhook.audit.names import name_problem

    if value is None:
        return None
    namespace, _, name = value.partition("/")
    if not namespace or not name:
        raise click.BadParameter(f"{value!r} is no release; write NAMESPACE/NAME")
    if problem := name_problem(namespace) or name_problem(name):
        raise click.BadParameter(problem)
    return namespace, name


@click.command(
    epilog="""\b
Exit status:
  0    nothing was found that counts (--fail-on)
  1    something was
  2    the cluster could not be asked, a report not be written into it, or the usage is at fault

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
    callback=_policy_of,
    metavar="NAMESPACE/NAME",
    help="Go by the policy of a release that is installed: gpufence-system/gpufence.",
)
@kubeconfig_option
@context_option
@output_option("audit")
@color_option
@click.option(
    "--quiet", "-q", is_flag=True, help="Leave out of the text all but what somebody has to see to."
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "enforce", "warn"]),
    default="enforce",
    show_default=True,
    help="Exit with 1 where a finding is enforced, also where one is only a warning, or never.",
)
@click.option(
    "--policy-reports",
    is_flag=True,
    help="Write the findings into the cluster as PolicyReports, where it has that kind.",
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
    """Audit a live cluster: what the policy would refuse or change of what is there now.

    Every workload and every bare Pod is judged as if it were created today, and each finding is
    told once, at the topmost owner of what has it. Beside that, the pools: who holds which devices,
    what is free, which Pods sit on GPU nodes without a request, and which of these nodes lack the
    pool's taint or labels. Nothing is changed, but for --policy-reports. What this account may not
    list is left out, and said.
    """
    from webhook.cli.report.audit_results import results_of
    from webhook.cli.report.content import AuditReport

    if policy_of is not None and policy_choice.is_explicit:
        raise click.UsageError("--policy and --policy-of are two ways to name it: give one")
    now = datetime.now(UTC)

    async def work(api: KubeApi) -> tuple[Audit, str]:
        return await _audit(api, policy_choice.path, policy_of, now)

    reject_overwriting_inputs(outputs, [policy_choice.path, kubeconfig])
    name = policy_choice.title if policy_of is None else "/".join(policy_of)
    with report_writer("audit", outputs, color) as write:
        found, host = with_api(kubeconfig, work, context)
        results = list(results_of(found))
        write(AuditReport(results, name, now, quiet, audit=found, cluster=host))
    if policy_reports:  # Last: what was found is told, whatever becomes of the reports.
        with_api(kubeconfig, partial(_publish, found=found, now=now), context)
    return EXIT_FOUND if _counts(results, fail_on) else 0


def _counts(results: Iterable[Result], fail_on: str) -> bool:
    """Tell whether something was found that counts."""
    counting = {"never": (), "enforce": ("enforce",), "warn": ("enforce", "warn")}[fail_on]
    return any(
        finding.action in counting
        for result in results
        for finding in (result.decision.findings if result.decision else ())
    )


async def _audit(
    api: KubeApi,
    policy_path: str | None,
    policy_of: tuple[str, str] | None,
    now: datetime,
) -> tuple[Audit, str]:
    """Return what was found, and what the cluster is called."""
    from webhook.audit.cluster_audit import audit as run
    from webhook.cli.policy.policy_file import compiled_policy

    policy = (
        compiled_policy(policy_path) if policy_of is None else await _installed(api, *policy_of)
    )
    return await run(api, policy, now.date()), await api.host()


async def _publish(api: KubeApi, found: Audit, now: datetime) -> None:
    """Write the findings into the cluster.

    Raises:
        ClusterError: that is not allowed, or the cluster cannot be asked.
        InputError: some could not be written, because of what is there by their names.
    """
    from webhook.audit.policy_reports import publish

    published = await publish(api, found, now)
    click.echo(published.said, err=True)
    if published.conflicts:
        raise InputError(published.conflicts)


async def _installed(api: KubeApi, namespace: str, name: str) -> Policy:
    """Return the policy of a release.

    Raises:
        InputError: there is no such release, or its policy is none.
    """
    from webhook.cli.policy.policy_file import read_policy

    where = f"ConfigMap {namespace}/{name}-policy"
    found = await api.read(f"/api/v1/namespaces/{namespace}/configmaps/{name}-policy")
    text = ((found or {}).get("data") or {}).get("policy.yaml")
    if text is None:
        state = "does not exist" if found is None else "holds no policy.yaml"
        raise InputError([f"{where} {state}. Name a release that is installed, or give --policy."])
    return read_policy(where, text).compile()

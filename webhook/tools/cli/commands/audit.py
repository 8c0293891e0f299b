"""``gpufence audit``: the decisions of a policy on the workloads of a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import click

from policies.policy import Pool
from policies.rules.check_pool_requirements import seconds
from webhook.cluster.objects import LiveObjects, Reader
from webhook.documents.document import InputError
from webhook.kube.writer import KubeWriter
from webhook.tools.audit.cluster_audit import Audit
from webhook.tools.audit.cluster_audit import audit as run
from webhook.tools.audit.fragments import pieces, without_small
from webhook.tools.audit.utilization import METRIC, PrometheusError, overtime, use_of_devices
from webhook.tools.audit.waste import Limit, Use, Window, waste
from webhook.tools.cli.commands import EXIT_BUG, EXIT_FOUND
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.flags import lifetime_option, parse_duration
from webhook.tools.cli.options import (
    Connection,
    PolicyChoice,
    cluster_policy_options,
    connection_options,
    quiet_option,
)
from webhook.tools.cli.report.content import AuditReport, overtime_sentences, results_of
from webhook.tools.cli.report.output import (
    Output,
    check_outputs,
    output_option,
    reading,
    write_reports,
)

T = TypeVar("T")


def _address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise click.BadParameter(f"{value!r} is not a URL. Write it like http://localhost:9090.")
    return value


@click.command(
    epilog="""\b
Exit status:
  0    no findings that fail the audit (--fail-on)
  1    at least one such finding
  2    the cluster is not reachable, or invalid usage
  70   gpufence has failed at an object, which is a bug; all others are audited

\b
Examples:
  gpufence audit
  gpufence audit --context production
  gpufence audit --output html=audit.html --output json=audit.json --quiet
  gpufence audit --since 168h --output json | jq .waste
""",
)
@cluster_policy_options
@connection_options
@output_option("audit")
@quiet_option
@click.option(
    "--fail-on",
    type=click.Choice(["never", "enforce", "warn"]),
    default="enforce",
    show_default=True,
    help="Findings that fail the audit: only enforced findings, warnings as well, or none.",
)
@lifetime_option(
    "--since",
    "24h",
    "The window of the device-hours: those that Pods hold, wait for and waste.",
)
@click.option(
    "--prometheus",
    type=_address,
    metavar="URL",
    help="Count idle devices, by the utilization that NVIDIA's exporter reports to Prometheus.",
)
@click.option(
    "--what-if-min-devices",
    type=click.IntRange(min=2),
    metavar="NUMBER",
    help="Show what would be free without the Pods that hold fewer devices of a pool.",
)
@click.option(
    "--what-if-max-runtime",
    type=parse_duration,
    metavar="TIME",
    help="Show the device-hours of Pods beyond this run time, in place of the policy's maxRuntime. "
    "With --prometheus, those of Pods that are gone count as well.",
)
def audit(
    policy_choice: PolicyChoice,
    connection: Connection,
    outputs: Sequence[Output],
    quiet: bool,
    fail_on: str,
    since: timedelta,
    prometheus: str | None,
    what_if_min_devices: int | None,
    what_if_max_runtime: timedelta | None,
) -> int:
    """Audit a live cluster: what the policy denies or changes among the existing workloads.

    gpufence checks every workload and every bare Pod as if it were created now, and reports each
    finding once, for the topmost owner. It also shows the pools: which Pods hold which devices,
    which devices are free, which Pods run on GPU nodes without a device request, and which nodes
    lack the taint or the labels of the pool. The report states the device-hours that are
    wasted, the most expensive first. Resources that the account cannot list are skipped and
    reported. The audit is read-only.
    """
    check_outputs(outputs, [policy_choice.path, connection.kubeconfig])
    now = datetime.now(UTC)

    async def work(api: KubeWriter) -> tuple[Audit, list[Result]]:
        with reading(enabled=not quiet) as progress:
            name, policy = await policy_choice.in_cluster(api)
            audited = await run(Reader(LiveObjects(api), progress), policy, now.date())
        results = list(results_of(audited))
        window = Window((now - since).timestamp(), now.timestamp())
        limit = what_if_max_runtime and what_if_max_runtime.total_seconds()
        limits = {
            state.pool.name: _asked(prometheus, overtime, window, longest)
            if prometheus
            else Limit(longest)
            for state in audited.pools
            if (longest := limit or _max_runtime(state.pool)) is not None
        }
        without = without_small(audited.pools, what_if_min_devices or 0)
        rows = waste(audited.pools, window, _use(prometheus, window), limits)
        report = AuditReport(
            name,
            now,
            results,
            policy.help,
            quiet,
            audit=audited,
            cluster=await api.host(),
            waste=rows,
            hours=since / timedelta(hours=1),
            lists=[
                ("Free, but in pieces", [*pieces(audited.pools)]),
                ("What if Pods held more devices", [each.sentence for each in without]),
                ("Beyond the longest run time", [*overtime_sentences(rows)]),
            ],
        )
        write_reports("audit", report, outputs)
        return audited, results

    audited, results = connection.run(work)
    counting = {"never": (), "enforce": ("enforce",), "warn": ("enforce", "warn")}[fail_on]
    fails = any(finding.action in counting for result in results for finding in result.findings)
    if audited.bugs:
        return EXIT_BUG
    return EXIT_FOUND if fails else 0


def _max_runtime(pool: Pool) -> float | None:
    """Return the longest run time of the pool's Pods in seconds, if the policy sets one."""
    given = [seconds(each.max_runtime) for each in pool.requires if each.max_runtime]
    return min(given, default=None)


def _use(prometheus: str | None, window: Window) -> dict[tuple[str, str], Use]:
    found = {} if prometheus is None else _asked(prometheus, use_of_devices, window)
    if prometheus is not None and not found:
        click.echo(
            f"--prometheus: {prometheus} has no {METRIC} with the Pods of devices in this time, so "
            "no idle device is counted. Let it scrape NVIDIA's dcgm-exporter.",
            err=True,
        )
    return found


def _asked(prometheus: str, ask: Callable[..., T], *of: object) -> T:
    try:
        return ask(prometheus, *of)
    except PrometheusError as error:
        problem = f"--prometheus: {prometheus} has not answered: {error}"
        raise InputError([f"{problem}. Correct the address, or leave out the option."]) from error

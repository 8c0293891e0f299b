"""``gpufence adopt``: what gpufence would change in a cluster, before it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import click

from policies.policy import Policy
from policies.rules import check_needs_root
from webhook.audit.cluster_audit import Audit, Progress
from webhook.audit.cluster_audit import audit as run
from webhook.audit.subjects import Subject
from webhook.cli.cluster_facts import state_of_cluster
from webhook.cli.options import Connection, connection_options, policy_path_option
from webhook.cli.policy.discover.drafts import draft
from webhook.cli.policy.discover.text import policy_text
from webhook.cli.report.content import AuditReport, results_of
from webhook.cli.report.output import Output, write_reports
from webhook.cli.report.terminal import reading
from webhook.documents.document import InputError
from webhook.documents.files import decode
from webhook.documents.policy_files import decode_policy, read_content, read_policy
from webhook.kube.client import KubeApi
from webhook.wording import counted

_SHOWN = 10
"""The workloads of each kind that the summary names; the report has all."""


class Adoption(NamedTuple):
    """A policy, and the audit of what it does in mode enforce."""

    text: str
    policy: Policy
    audit: Audit
    cluster: str

    @property
    def denied(self) -> list[Subject]:
        """The workloads whose Pods would be denied."""
        return [subject for subject in self.audit.subjects if not subject.decision.allowed]

    @property
    def with_another_user(self) -> list[Subject]:
        """The workloads whose Pods would get a user ID."""
        return [
            subject
            for subject in self.audit.subjects
            if subject.decision.allowed
            and any(
                "runAsUser" in operation.path
                or (isinstance(operation.value, dict) and "runAsUser" in operation.value)
                for operation in subject.decision.operations
            )
        ]

    @property
    def likely_to_fail(self) -> list[Subject]:
        """The workloads with a sign that they need root, or a home directory."""
        return [
            subject
            for subject in self.audit.subjects
            if any(finding.rule == check_needs_root.ID for finding in subject.decision.findings)
        ]


@click.command(
    epilog="""\b
Exit status:
  0  the files are written, whatever they say
  2  no node offers devices, the cluster is not reachable, or the directory has such files

\b
Examples:
  gpufence adopt
  gpufence adopt --out production --context production
  gpufence adopt --policy production/policy.yaml --out again
""",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="gpufence-adopt",
    show_default=True,
    help="Directory for policy.yaml, values.yaml and report.html.",
)
@policy_path_option("Use this policy, do not discover one.")
@connection_options
def adopt(out: Path, policy_path: str | None, connection: Connection) -> None:
    """Show what gpufence would change in a cluster, and prepare its installation.

    The command is read-only. It discovers a policy, audits every workload against it, and says
    which workloads it would deny, which Pods would run as another user, and which nodes lack labels
    or taints. Then it writes the policy, chart values and an HTML report. The discovered policy is
    in mode audit; one that you give stays as it is.
    """
    files = [out / name for name in ("policy.yaml", "values.yaml", "report.html")]
    if existing := [str(path) for path in files if path.exists()]:
        problem = f"{', '.join(existing)} exists already"
        raise InputError([f"{problem}. Set another directory with --out."])

    async def work(api: KubeApi) -> Adoption:
        with reading(enabled=True) as progress:
            return await _adopt(api, policy_path, progress)

    adoption = connection.run(work)
    out.mkdir(parents=True, exist_ok=True)
    files[0].write_text(adoption.text)
    files[1].write_text(_values(adoption.text))
    results = list(results_of(adoption.audit))
    report = AuditReport(
        "the policy in mode enforce",
        datetime.now(UTC),
        results,
        audit=adoption.audit,
        cluster=adoption.cluster,
    )
    write_reports("audit", report, [Output("html", str(files[2]))], "never")
    for line in _summary(adoption, out):
        click.echo(line)


async def _adopt(api: KubeApi, policy_path: str | None, progress: Progress) -> Adoption:
    """Discover or read the policy, and audit the cluster as if it were enforced."""
    if policy_path is None:
        text = await _discovered(api)
        policy = read_policy("the discovered policy", text)
    else:
        content = read_content(policy_path)
        policy, text = decode_policy(policy_path, content), decode(content)
    overrides = [replace(each, mode=each.mode and "enforce") for each in policy.overrides]
    enforced = replace(policy, mode="enforce", overrides=tuple(overrides))
    result = await run(api, enforced, datetime.now(UTC).date(), progress)
    return Adoption(text, policy, result, await api.host())


async def _discovered(api: KubeApi) -> str:
    """Return the policy for the nodes of the cluster, in mode audit.

    Raises:
        InputError: no node offers devices of a known vendor.
    """
    state = await state_of_cluster(api)
    nodes = list(state.nodes.index)
    drafted = draft(nodes, state.templates, state.device_classes.names())
    namespaces = frozenset(state.namespaces.names())
    return policy_text(drafted, nodes, len(state.templates), namespaces, "audit")


def _values(policy: str) -> str:
    """Return chart values with the policy as a document."""
    head = (
        "# Values for the chart: helm install gpufence deploy/helm/gpufence --values values.yaml\n"
    )
    return f"{head}policyDocument: |\n{indent(policy, '  ')}"


def _summary(adoption: Adoption, out: Path) -> Iterator[str]:
    """Yield the lines of the summary."""
    audit, pools = adoption.audit, adoption.policy.pools
    yield (
        f"{adoption.cluster}: {counted(len(audit.subjects), 'workload')}, "
        f"{counted(audit.pods, 'Pod')}, {counted(len(pools), 'pool')} of GPU nodes "
        f"({', '.join(pool.name for pool in pools)})"
    )
    yield from _section("Denied in mode enforce", adoption.denied, _first_denial)
    failing = {subject.place for subject in adoption.likely_to_fail}
    yield from _section(
        "Run as the user of the policy from their next start",
        adoption.with_another_user,
        lambda subject: "likely to fail" if subject.place in failing else "",
    )
    yield from _section(
        "Signs of a need for root or a home directory",
        adoption.likely_to_fail,
        lambda subject: _first(subject, check_needs_root.ID),
    )
    yield ""
    nodes = [(node.name, finding) for node in audit.nodes for finding in node.findings]
    yield f"GPU nodes: {counted(len(nodes), 'problem')}"
    for name, finding in nodes[:_SHOWN]:
        yield f"  {name}: {finding.reason}"
    yield from _more(len(nodes))
    for problem in audit.skipped:
        yield f"Not read: {problem}"
    yield ""
    yield f"Next: read {out}/report.html, change {out}/policy.yaml, and install it in mode audit:"
    yield "  helm install gpufence deploy/helm/gpufence --namespace gpufence-system \\"
    yield f"    --create-namespace --values {out}/values.yaml"


def _section(
    title: str, workloads: Sequence[Subject], note: Callable[[Subject], str]
) -> Iterator[str]:
    yield ""
    yield f"{title}: {counted(len(workloads), 'workload')}"
    for subject in workloads[:_SHOWN]:
        text = note(subject)
        yield f"  {subject.place}{f': {text}' if text else ''}"
    yield from _more(len(workloads))


def _more(count: int) -> Iterator[str]:
    if count > _SHOWN:
        yield f"  and {count - _SHOWN} more: see report.html"


def _first_denial(subject: Subject) -> str:
    return next(
        f"{finding.rule}: {finding.reason}"
        for finding in subject.decision.findings
        if finding.action == "enforce"
    )


def _first(subject: Subject, rule: str) -> str:
    return next(each.reason for each in subject.decision.findings if each.rule == rule)

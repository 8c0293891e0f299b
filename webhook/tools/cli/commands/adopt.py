"""``gpufence adopt``: what gpufence would change in a cluster, before it is installed.

The cluster is a live one, or a dump, as ``kubectl get -o json`` prints it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import click

from policies.engine import decide
from policies.facts import Facts, Request
from policies.finding import Action, Finding
from policies.images import Image, known_image
from policies.kubernetes.objects import JSONObject
from policies.policy import EffectiveHardening, Hardening, Policy
from policies.rules import (
    check_needs_root,
    check_system_priority,
    check_unschedulable_gpu_pod,
    set_restricted_security_context,
)
from policies.rules.set_restricted_security_context import HOME_SIZE
from webhook.cluster.files import PATHS
from webhook.cluster.listed import list_state
from webhook.cluster.objects import Objects, Reader
from webhook.cluster.state import ClusterState
from webhook.documents.document import InputError
from webhook.documents.policy_files import policy_name, read_policy, read_policy_text
from webhook.tools.audit.adoption import TITLES, Entry, ListName, lists
from webhook.tools.audit.cluster_audit import Audit
from webhook.tools.audit.cluster_audit import audit as run
from webhook.tools.audit.subjects import Subject
from webhook.tools.cli.commands import EXIT_BUG, EXIT_INPUT
from webhook.tools.cli.discover.drafts import draft_of
from webhook.tools.cli.discover.text import policy_text
from webhook.tools.cli.flags import policy_path_option
from webhook.tools.cli.options import Connection, connection_options, run_on, version_option
from webhook.tools.cli.policy_diff.fields import document, flow
from webhook.tools.cli.report.content import AuditReport, results_of
from webhook.tools.cli.report.json import formatted
from webhook.tools.cli.report.output import Output, reading, write_file, write_reports
from webhook.tools.custom_resources import workload
from webhook.tools.platforms import platforms_of
from webhook.wording import counted, printable

_SHOWN = 10
"""The entries that the summary shows in each section; the report has all."""

_NEXT = """\
Next: read {out}/report.html, and change {out}/policy.yaml. Then install gpufence with it, from the
checkout, with an image in your registry:
  IMAGE=registry.example/gpufence
  docker build -f deploy/Dockerfile -t $IMAGE:{version} .
  docker push $IMAGE:{version}
  helm install gpufence deploy/helm/gpufence --namespace gpufence-system --create-namespace \\
    --set image.repository=$IMAGE --set policy.create=false
  kubectl apply -f {out}/policy.yaml
If gpufence is installed, run the last command only. See before what it changes:
  gpufence policy diff --cluster {out}/policy.yaml
"""


class Adoption(NamedTuple):
    """A policy, and the audit of what it does in mode enforce."""

    text: str
    policy: Policy
    audit: Audit
    cluster: str
    is_given: bool
    """Whether the policy is not discovered."""
    notes: Sequence[str]
    """What discovery leaves to a person."""
    hardening: Mapping[str, Hardening]
    """By the place of a workload that likely fails, the settings without which it does."""
    exempt: Sequence[str]
    """The namespaces of the cluster to which the policy does not apply, and whose Pods need it."""


@click.command(
    epilog="""\b
Exit status:
  0   the files are written, whatever they say
  2   no node offers devices, the cluster is not reachable, or the directory has such files; or
      the files are written, and an object of the dump is malformed
  70  the files are written, and gpufence has failed at an object, which is a bug

\b
Examples:
  gpufence adopt
  gpufence adopt --out production --context production
  gpufence adopt --policy production/policy.yaml --out again
  gpufence adopt --dump dump.json --out production
  gpufence adopt --output json | jq .denied
""",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="gpufence-adopt",
    show_default=True,
    help="Directory for policy.yaml and report.html.",
)
@policy_path_option("Use this policy, do not discover one.")
@click.option(
    "--dump", metavar="FILE", help="Read what kubectl get -o json printed, not a cluster."
)
@version_option
@click.option(
    "--output",
    "-o",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the summary. In JSON, the lists have each workload and each Pod.",
)
@connection_options
def adopt(
    out: Path,
    policy_path: str | None,
    dump: str | None,
    kubernetes_version: int | None,
    output: str,
    connection: Connection,
) -> int:
    """Show what gpufence would change in a cluster, and prepare its installation.

    The command is read-only. It discovers a policy, judges every workload and Pod as if it were
    created again in mode enforce, and lists those that are denied, run as another user, change
    otherwise, cannot be judged, or leave the GPU nodes. It says which nodes lack labels or taints.
    Then it writes the policy and an HTML report with the same lists. The discovered policy is in
    mode audit, with overrides for namespaces whose workloads need them, and exceptions for the
    agents of nodes that have a priority class of the system; one that you give stays as it is.
    """
    files = [out / name for name in ("policy.yaml", "report.html")]
    if existing := [path.name for path in files if path.exists()]:
        problem = f"directory {out} has {' and '.join(existing)} already"
        raise InputError([f"{problem}. Set another directory with --out."])
    if dump is not None and not connection.is_default:
        raise click.UsageError("--dump takes the place of a cluster: leave out its options.")
    if dump is None and kubernetes_version is not None:
        raise click.UsageError("--kubernetes-version is for a --dump: a cluster says its version.")

    async def work(objects: Objects) -> Adoption:
        with reading(enabled=output == "text") as progress:
            return await _adopt(Reader(objects, progress), policy_path)

    adoption = run_on(connection, dump, work, PATHS.__contains__, kubernetes_version)
    out.mkdir(parents=True, exist_ok=True)
    write_file(files[0], adoption.text.encode())
    report = AuditReport(
        f"{policy_path or 'discovered, without overrides and exceptions'}, as if in mode enforce",
        datetime.now(UTC),
        list(results_of(adoption.audit)),
        audit=adoption.audit,
        cluster=adoption.cluster,
        command="adopt",
        lists=[(title, lines) for title, _, lines in _sections(adoption)],
    )
    write_reports("audit", report, [Output("html", str(files[1]))])
    if output == "json":
        click.echo(formatted(_document(adoption)), nl=False)
    else:
        for line in _summary(adoption, out):
            click.echo(printable(line))
    if adoption.audit.bugs:
        return EXIT_BUG
    return EXIT_INPUT if adoption.audit.malformed else 0


async def _adopt(reader: Reader, policy_path: str | None) -> Adoption:
    """Discover or read the policy, and audit the cluster as if it were enforced.

    Raises:
        InputError: the policy is invalid, or no node offers devices of a known vendor.
    """
    notes: list[str] = []
    state = await list_state(reader)
    namespaces = frozenset(state.namespaces.names())
    platforms = await platforms_of(reader, namespaces)
    drafted = None
    if policy_path is None:
        drafted = draft_of(state)
        exempt = [each.namespace for each in platforms if each.namespace]
        text = policy_text(drafted, namespaces, "audit", platforms=exempt)
        policy, notes = read_policy("the discovered policy", text), drafted.findings
        left = [each for each in platforms if not each.namespace]
        notes = [*notes, *(f"{each.problem}. {each.remediation}" for each in left)]
    else:
        text = read_policy_text(policy_path)
        policy = read_policy(policy_name(policy_path), text)
    overrides = [replace(each, mode=each.mode and "enforce") for each in policy.overrides]
    enforced = replace(policy, mode="enforce", overrides=tuple(overrides))
    result = await run(reader, enforced, datetime.now(UTC).date())
    failing = list(_failing(result, policy, state))
    if drafted is not None:
        text = policy_text(
            drafted, namespaces, "audit", list(_overrides(failing)), exempt, _exceptions(result)
        )
        policy = read_policy("the discovered policy", text)
    hardening = {each.place: found for each in failing if (found := _settled([each]))}
    pods = {each.namespace: f": {each.platform.pods} of {each.platform.name}" for each in platforms}
    return Adoption(
        text,
        policy,
        result,
        await reader.objects.title(),
        drafted is None,
        notes,
        hardening,
        [
            f"{name}{pods.get(name, '')}"
            for name in sorted(policy.exemptions.namespaces & namespaces)
        ],
    )


class _Failing(NamedTuple):
    """A workload that shows signs of a need for root or a home directory, and a policy for it."""

    place: str
    namespace: str
    pods: JSONObject
    policy: Policy
    own: EffectiveHardening
    """Its settings in this policy."""

    def signs(self, others: Hardening) -> set[tuple[str, str]]:
        """Return the paths and reasons of the signs that its Pods have with other settings."""
        hardening = self.own.with_settings(others).settings
        pools = tuple(replace(pool, hardening=None) for pool in self.policy.pools)
        rules: dict[str, Action] = {
            **dict.fromkeys(self.policy.rules, "off"),
            set_restricted_security_context.ID: "enforce",
            check_needs_root.ID: "warn",
        }
        policy = replace(
            self.policy, mode="enforce", rules=rules, pools=pools, overrides=(), hardening=hardening
        )
        decision = decide(self.pods, policy, Request(namespace=self.namespace), Facts())
        return {(each.path, each.reason) for each in decision.findings}

    def images(self) -> Iterator[Image]:
        for pod in workload(self.pods, self.policy).pods():
            for container in pod.containers:
                if known := known_image(container.spec.image or ""):
                    yield known


def _failing(audit: Audit, policy: Policy, state: ClusterState) -> Iterator[_Failing]:
    """Yield the workloads that gpufence gives a user which is likely not enough.

    Those that are denied are among them: their Pods get the user once the denial is fixed.
    """
    for subject in audit.subjects:
        decision, namespace = subject.decision, subject.owned.namespace
        if subject.users and decision.operations:
            pools = [pool for pool in policy.pools if pool.name in decision.pools]
            actions = policy.actions_in(namespace, state.namespaces.by_name.get(namespace))
            own = policy.hardening_of(actions, pools)
            failing = _Failing(subject.place, namespace, decision.original, policy, own)
            if failing.signs(Hardening()):
                yield failing


def _settled(workloads: Sequence[_Failing]) -> Hardening | None:
    """Return the settings with which the fewest signs remain; ``None`` if no setting helps.

    Of several, the first: a home directory, the user of an image, both, or root.
    """
    home = None if workloads[0].own.home else HOME_SIZE
    known = [image for each in workloads for image in each.images() if image.user]
    users = [Hardening(run_as_user=image.user, fs_group=image.fs_group) for image in known]
    homes = [replace(each, home=home) for each in (Hardening(), *users)]
    candidates = [Hardening(), homes[0], *users, *homes[1:], Hardening(level="baseline")]
    before = [each.signs(candidates[0]) for each in workloads]

    def remaining(others: Hardening) -> int:
        after = (each.signs(others) for each in workloads)
        return sum(len(old & new) for old, new in zip(before, after, strict=True))

    best = min(candidates, key=remaining)
    return None if best == Hardening() else best


def _overrides(failing: Iterable[_Failing]) -> Iterator[JSONObject]:
    """Yield an override for each namespace whose workloads a setting helps."""
    by_namespace: defaultdict[str, list[_Failing]] = defaultdict(list)
    for each in failing:
        by_namespace[each.namespace].append(each)
    for namespace, workloads in sorted(by_namespace.items()):
        if hardening := _settled(workloads):
            yield {"namespaces": [namespace], "hardening": document(hardening)}


def _exceptions(audit: Audit) -> list[JSONObject]:
    """Return an exception for each namespace with agents that have a priority of the system."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for subject in filter(_is_excepted, audit.subjects):
        names[subject.owned.namespace].append(subject.owned.name)
    return [
        {
            "rules": [check_system_priority.ID],
            "namespaces": [namespace],
            "kinds": ["DaemonSet"],
            "names": agents,
            "reason": "an agent of all nodes, which ran before gpufence",
        }
        for namespace, agents in sorted(names.items())
    ]


def _is_excepted(subject: Subject) -> bool:
    return subject.kind.kind == "DaemonSet" and bool(_findings(subject, check_system_priority.ID))


def _lists(adoption: Adoption) -> dict[ListName, list[Entry]]:
    """Return the lists of workloads, each with its outlook as another user."""
    outlooks: dict[str, str] = {}
    how = "set" if adoption.is_given else "policy.yaml has"
    for subject in adoption.audit.subjects:
        parts = []
        if subject.running_users:
            parts.append(f"now user {', '.join(map(str, sorted(subject.running_users)))}")
        # Signs of a need for root or a home directory.
        if signs := [each.reason for each in _findings(subject, check_needs_root.ID)]:
            settings = adoption.hardening.get(subject.place)
            cure = f": {how} hardening: {flow(document(settings))}" if settings else ""
            parts.append(f"likely to fail ({signs[0]}){cure}")
        if subject.users and parts:
            outlooks[subject.place] = "; ".join(parts)
        elif _is_excepted(subject) and not adoption.is_given:
            outlooks[subject.place] = "policy.yaml has an exception"
    return lists(adoption.audit.subjects, outlooks)


def _findings(subject: Subject, rule: str) -> list[Finding]:
    return [finding for finding in subject.decision.findings if finding.rule == rule]


def _sections(adoption: Adoption) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield the title, the count and the lines of each list of the summary and the report."""
    audit = adoption.audit
    found = _lists(adoption)
    for name, entries in found.items():
        count = sum(1 + len(entry.alike) for entry in entries)
        yield TITLES[name], counted(count, "workload"), [*map(str, entries)]
    nodes = [f"{node.name}: {finding.reason}" for node in audit.nodes for finding in node.findings]
    others: list[tuple[str, str, Sequence[str]]] = [
        ("Scheduling of GPU workloads", "problem", [*_scheduling(audit)]),
        ("GPU stack", "problem", [*map(str, audit.stack)]),
        ("GPU nodes", "problem", nodes),
        ("Exempt from the policy", "namespace", adoption.exempt),
        ("Pools and platforms, for you to decide", "finding", adoption.notes),
    ]
    if audit.skipped:
        others.append(("Not read", "problem", audit.skipped))
    for title, what, lines in others:
        yield title, counted(len(lines), what), lines


def _summary(adoption: Adoption, out: Path) -> Iterator[str]:
    """Yield the lines of the summary."""
    audit, pools = adoption.audit, adoption.policy.pools
    yield (
        f"{adoption.cluster}: {counted(len(audit.subjects), 'workload')}, "
        f"{counted(audit.pods, 'Pod')}, {counted(len(pools), 'pool')} of GPU nodes "
        f"({', '.join(pool.name for pool in pools)})"
    )
    for title, count, lines in _sections(adoption):
        yield ""
        yield f"{title}: {count}"
        yield from (f"  {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN} more: see {out}/report.html"
    yield ""
    yield from _NEXT.format(out=out, version=version("gpufence")).splitlines()


def _document(adoption: Adoption) -> JSONObject:
    """Return the summary for programs. Each workload and each Pod has an entry of its own."""
    found: JSONObject = {
        name: [
            {
                "group": entry.subject.kind.group,
                "kind": entry.subject.kind.kind,
                "namespace": entry.subject.owned.namespace,
                "name": each,
                "why": entry.why,
                "users": [
                    {"container": user.container, "from": user.before, "to": user.after}
                    for user in entry.subject.users
                ],
            }
            for entry in entries
            for each in (entry.subject.owned.name, *entry.alike)
        ]
        for name, entries in _lists(adoption).items()
    }
    audit = adoption.audit
    return {
        "cluster": adoption.cluster,
        "pools": [pool.name for pool in adoption.policy.pools],
        "workloads": len(audit.subjects),
        "pods": audit.pods,
        **found,
        "scheduling": [*_scheduling(audit)],
        "gpuStack": [*map(str, audit.stack)],
        "nodes": [
            {"name": node.name, "reason": finding.reason}
            for node in audit.nodes
            for finding in node.findings
        ],
        "exemptNamespaces": list(adoption.exempt),
        "toDecide": list(adoption.notes),
        "notRead": list(audit.skipped),
    }


def _scheduling(audit: Audit) -> Iterator[str]:
    """Yield what keeps the Pods of workloads Pending, with gpufence or without it."""
    for subject in audit.subjects:
        for finding in _findings(subject, check_unschedulable_gpu_pod.ID):
            yield f"{subject.place}: {finding.reason}: {finding.detail}"

"""``gpufence adopt``: what gpufence would change in a cluster, before it is installed.

The cluster is a live one, or a dump, as ``kubectl get -o json`` prints it.
"""

from __future__ import annotations

import re
from asyncio import Future, ensure_future
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Request
from policies.finding import Action
from policies.images import Image, known_image
from policies.kubernetes.field_types import camel_case
from policies.kubernetes.objects import JSONObject
from policies.policy import Hardening, Policy
from policies.rules import check_needs_root, set_restricted_security_context
from policies.rules.set_restricted_security_context import HOME_SIZE
from webhook.kube.client import MOST_BYTES, KubeApi, Query
from webhook.kube.credentials import Access, Load
from webhook.kube.errors import NOT_FOUND, ApiError
from webhook.kube.listing import list_all
from webhook.kube.nodes import NODES
from webhook.kube.writer import KubeWriter
from webhook.serve.cluster.state import NAMESPACES, ClusterState
from webhook.tools.audit.cluster_audit import Audit, Progress
from webhook.tools.audit.cluster_audit import audit as run
from webhook.tools.audit.move import QUOTAS, Move
from webhook.tools.cli.cluster_facts import state_of_cluster
from webhook.tools.cli.discover.drafts import draft_of
from webhook.tools.cli.discover.text import policy_text
from webhook.tools.cli.manifests import read_file
from webhook.tools.cli.node_files import PATHS
from webhook.tools.cli.options import Connection, connection_options, policy_path_option
from webhook.tools.cli.report.content import AuditReport, results_of
from webhook.tools.cli.report.output import Output, reading, write_reports
from webhook.tools.custom_resources import workload
from webhook.tools.documents.document import InputError, raise_errors
from webhook.tools.documents.files import display_name
from webhook.tools.documents.policy_files import policy_name, read_policy, read_policy_text
from webhook.tools.platforms import platforms_of
from webhook.wording import counted

_SHOWN = 10
"""The entries that the summary shows in each section; the report has all."""

_ENDED = ("Succeeded", "Failed")
"""The phases of Pods that an audit does not list."""
_CURE = "Create it with kubectl get --all-namespaces -o json nodes,namespaces,pods,deployments,jobs"

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
    before_move: Sequence[str]
    """What a move of the pools to DRA breaks."""
    exempt: Sequence[str]
    """The namespaces of the cluster to which the policy does not apply, and whose Pods need it."""


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
  gpufence adopt --dump dump.json --out production
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
@connection_options
def adopt(out: Path, policy_path: str | None, dump: str | None, connection: Connection) -> None:
    """Show what gpufence would change in a cluster, and prepare its installation.

    The command is read-only. It discovers a policy, audits every workload against it, and says
    which workloads it would deny, which Pods would run as another user and what they need for it,
    which nodes lack labels or taints, and what breaks when a DRA driver takes the place of the
    device plugin. Then it writes the policy and an HTML report. The discovered policy is in mode
    audit, with overrides for namespaces whose workloads need them; one that you give stays as it
    is.
    """
    files = [out / name for name in ("policy.yaml", "report.html")]
    if existing := [str(path) for path in files if path.exists()]:
        problem = f"{', '.join(existing)} exists already"
        raise InputError([f"{problem}. Set another directory with --out."])

    if dump is not None and not connection.is_default:
        raise click.UsageError("--dump takes the place of a cluster: leave out its options.")

    async def work(api: KubeApi) -> Adoption:
        with reading(enabled=True) as progress:
            return await _adopt(api, policy_path, progress)

    api = Dump(dump) if dump is not None else Cluster(connection.load(), PATHS)
    adoption = connection.run(work, api)
    out.mkdir(parents=True, exist_ok=True)
    files[0].write_text(adoption.text)
    results = list(results_of(adoption.audit))
    report = AuditReport(
        f"{policy_path or 'discovered, without its overrides'}, as if in mode enforce",
        datetime.now(UTC),
        results,
        audit=adoption.audit,
        cluster=adoption.cluster,
        notes=[*adoption.notes, *adoption.before_move],
    )
    write_reports("audit", report, [Output("html", str(files[1]))], "never")
    for line in _summary(adoption, out):
        click.echo(line)


async def _adopt(api: KubeApi, policy_path: str | None, progress: Progress) -> Adoption:
    """Discover or read the policy, and audit the cluster as if it were enforced.

    Raises:
        InputError: the policy is invalid, or no node offers devices of a known vendor.
    """
    notes: list[str] = []
    state = await state_of_cluster(api, progress)
    namespaces = frozenset(state.namespaces.names())
    platforms = await platforms_of(api, namespaces)
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
    move = Move(policy)
    result = await run(api, enforced, datetime.now(UTC).date(), progress, move)
    failing = list(_failing(result, policy))
    if drafted is not None:
        text = policy_text(drafted, namespaces, "audit", list(_overrides(failing)), exempt)
        policy = read_policy("the discovered policy", text)
    hardening = {each.place: found for each in failing if (found := _settled([each]))}
    pods = {each.namespace: f": {each.platform.pods} of {each.platform.name}" for each in platforms}
    return Adoption(
        text,
        policy,
        result,
        await api.host(),
        drafted is None,
        notes,
        hardening,
        await _breaks(api, move, state),
        [
            f"{name}{pods.get(name, '')}"
            for name in sorted(policy.exemptions.namespaces & namespaces)
        ],
    )


async def _breaks(api: KubeApi, move: Move, state: ClusterState) -> list[str]:
    """Return what a move of the pools to DRA breaks."""
    quotas: list[JSONObject] = []
    with suppress(ApiError):
        quotas = await list_all(api, QUOTAS.path, QUOTAS.item, lambda item: item)
    return [*move.problems(state.device_classes.providers, quotas, state.templates)]


class _Failing(NamedTuple):
    """A workload that shows signs of a need for root or a home directory, and a policy for it."""

    place: str
    namespace: str
    pods: JSONObject
    policy: Policy
    own: Hardening
    """Its settings in this policy."""

    def signs(self, hardening: Hardening) -> set[tuple[str, str]]:
        """Return the paths and reasons of the signs that its Pods have with these settings."""
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


def _failing(audit: Audit, policy: Policy) -> Iterator[_Failing]:
    """Yield the workloads that gpufence gives a user which is likely not enough."""
    for subject in audit.subjects:
        decision, namespace = subject.decision, subject.owned.namespace
        if decision.allowed and _assigned_user(decision) is not None:
            pools = [pool for pool in policy.pools if pool.name in decision.pools]
            own = policy.hardening_of(namespace, pools)
            failing = _Failing(subject.place, namespace, decision.original, policy, own)
            if failing.signs(own):
                yield failing


def _settled(workloads: Sequence[_Failing]) -> Hardening | None:
    """Return the settings with which the fewest signs remain; ``None`` if no setting helps.

    Of several, the first: a home directory, the user of an image, both, or root.
    """
    own = workloads[0].own
    known = [image for each in workloads for image in each.images() if image.user]
    users = [replace(own, run_as_user=image.user, fs_group=image.fs_group) for image in known]
    homes = [replace(each, home=each.home or HOME_SIZE) for each in (own, *users)]
    candidates = [own, homes[0], *users, *homes[1:], replace(own, level="baseline")]
    before = [each.signs(own) for each in workloads]

    def remaining(hardening: Hardening) -> int:
        after = (each.signs(hardening) for each in workloads)
        return sum(len(old & new) for old, new in zip(before, after, strict=True))

    best = min(candidates, key=remaining)
    return None if best is own else best


def _overrides(failing: Iterable[_Failing]) -> Iterator[JSONObject]:
    """Yield an override for each namespace whose workloads a setting helps."""
    by_namespace: defaultdict[str, list[_Failing]] = defaultdict(list)
    for each in failing:
        by_namespace[each.namespace].append(each)
    for namespace, workloads in sorted(by_namespace.items()):
        if hardening := _settled(workloads):
            yield {"namespaces": [namespace], "hardening": _written(hardening)}


def _written(hardening: Hardening) -> JSONObject:
    """Return settings as a policy has them, without those that are the default."""
    default = Hardening()
    return {
        camel_case(each.name): value
        for each in fields(Hardening)
        if (value := getattr(hardening, each.name)) != getattr(default, each.name)
    }


def _summary(adoption: Adoption, out: Path) -> Iterator[str]:
    """Yield the lines of the summary."""
    audit, pools = adoption.audit, adoption.policy.pools
    denied, with_another_user, changed, likely_to_fail = [], [], [], []
    how = "set" if adoption.is_given else "policy.yaml has"
    for subject in audit.subjects:
        findings = subject.decision.findings
        signs = [finding.reason for finding in findings if finding.rule == check_needs_root.ID]
        if signs:
            likely_to_fail.append(f"{subject.place}: {signs[0]}")
        if not subject.decision.allowed:
            first = next(finding for finding in findings if finding.action == "enforce")
            denied.append(f"{subject.place}: {first.rule}: {first.reason}")
        elif (user := _assigned_user(subject.decision)) is not None:
            now = f", now {', '.join(map(str, sorted(subject.users)))}" if subject.users else ""
            outlook = "; likely to fail" if signs else ""
            if (setting := adoption.hardening.get(subject.place)) is not None:
                outlook += f": {how} hardening: {_flow(_written(setting))}"
            with_another_user.append(f"{subject.place}: user {user}{now}{outlook}")
        elif subject.decision.operations:
            rules = ", ".join(dict.fromkeys(subject.decision.mutations))
            changed.append(f"{subject.place}: {rules}")
    nodes = [f"{node.name}: {finding.reason}" for node in audit.nodes for finding in node.findings]
    yield (
        f"{adoption.cluster}: {counted(len(audit.subjects), 'workload')}, "
        f"{counted(audit.pods, 'Pod')}, {counted(len(pools), 'pool')} of GPU nodes "
        f"({', '.join(pool.name for pool in pools)})"
    )
    for title, what, lines in (
        ("Denied in mode enforce", "workload", denied),
        ("Run as another user from their next start", "workload", with_another_user),
        ("Changed in other ways from their next start", "workload", changed),
        ("Running GPU Pods by user", "Pod", list(_users(audit.users))),
        ("Signs of a need for root or a home directory", "workload", likely_to_fail),
        ("GPU stack, to change before nodes get a taint", "problem", [*map(str, audit.unreached)]),
        ("GPU nodes", "problem", nodes),
        ("Exempt from the policy", "namespace", adoption.exempt),
        ("Pools and platforms, for you to decide", "finding", adoption.notes),
        ("Before you move a pool to DRA", "problem", adoption.before_move),
    ):
        yield ""
        number = audit.users.total() if what == "Pod" else len(lines)
        yield f"{title}: {counted(number, what)}"
        yield from (f"  {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN} more: see report.html"
    for problem in audit.skipped:
        yield f"Not read: {problem}"
    yield ""
    yield from _NEXT.format(out=out, version=version("gpufence")).splitlines()


def _flow(settings: JSONObject) -> str:
    """Return settings as YAML in one line."""
    return f"{{{', '.join(f'{key}: {value}' for key, value in settings.items())}}}"


def _assigned_user(decision: Decision) -> int | None:
    """Return the user ID that the policy gives a Pod, if it gives it one."""
    for operation in decision.operations:
        if operation.path.endswith("/runAsUser"):
            return int(operation.value)
        if isinstance(operation.value, dict) and "runAsUser" in operation.value:
            return int(operation.value["runAsUser"])
    return None


def _users(users: Counter[int | None]) -> Iterator[str]:
    for user in sorted(user for user in users if user is not None):
        yield f"user {user}{'' if user else ' (root)'}: {counted(users[user], 'Pod')}"
    if users[None]:
        yield f"unknown, because the nodes do not report it: {counted(users[None], 'Pod')}"


class Cluster(KubeWriter):
    """A live cluster for two readers: what one reads of these paths, the other gets as well.

    Without paths, they share everything.
    """

    def __init__(self, load: Load, paths: Collection[str] = ()) -> None:
        super().__init__(load)
        self._paths = paths
        self._read: dict[tuple[str, str], Future[bytes]] = {}

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        seconds: float,
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        page = path, str(query)
        if (body := self._read.pop(page, None)) is None:
            body = ensure_future(super().get(path, query, seconds=seconds, most_bytes=most_bytes))
            if not self._paths or path in self._paths:
                self._read[page] = body
        return await body


class Dump(KubeWriter):
    """Answers what an audit reads: collections, and which kinds there are.

    A collection has the name that Kubernetes gives its own: the plural of the kind. A Pod that has
    ended is left out.

    Raises:
        InputError: the file cannot be read, an object in it is invalid, or it has no nodes or no
            namespaces.
    """

    def __init__(self, path: str) -> None:
        super().__init__(_no_access)
        self._name = display_name(path)
        self._items: defaultdict[str, list[JSONObject]] = defaultdict(list)
        self._resources: defaultdict[str, dict[str, JSONObject]] = defaultdict(dict)
        errors = []
        for manifest in read_file(path):
            errors.append((manifest.document, manifest.error))
            if manifest.error is None and manifest.value is not None:
                self._take(manifest.value)
        raise_errors(errors)
        for collection in (NODES, NAMESPACES):
            if collection.path not in self._items:
                raise InputError([f"{self._name} contains no {collection.name}. {_CURE}."])

    def _take(self, obj: JSONObject) -> None:
        version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        metadata, status = obj.get("metadata") or {}, obj.get("status") or {}
        if (version, kind) == ("v1", "Pod") and status.get("phase") in _ENDED:
            return
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        name = _plural(kind.lower())
        self._items[f"{root}/{name}"].append(obj)
        resource = {"name": name, "kind": kind, "verbs": ["list"]}
        self._resources[root][name] = {**resource, "namespaced": "namespace" in metadata}

    async def host(self) -> str:
        """Return the name of the file."""
        return self._name

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        seconds: float = 0,
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        """Return a collection, the groups, or the kinds of a group.

        Raises:
            ApiError: the dump has no such objects.
        """
        body: dict[str, Any]
        if path == "/apis":
            body = {"groups": [*self._groups()]}
        elif path in self._resources:
            body = {"resources": [*self._resources[path].values()]}
        elif path in self._items:
            body = {"metadata": {}, "items": self._items[path]}
        else:
            kinds = path.rpartition("/")[2]
            raise ApiError(NOT_FOUND, f"{self._name} has no {kinds}")
        return msgspec.json.encode(body)

    def _groups(self) -> list[JSONObject]:
        versions: defaultdict[str, list[JSONObject]] = defaultdict(list)
        for root in self._resources:
            group, _, version = root.removeprefix("/apis/").partition("/")
            if root.startswith("/apis/"):
                versions[group].append({"version": version})
        return [
            {"name": group, "preferredVersion": found[0], "versions": found}
            for group, found in versions.items()
        ]


def _plural(kind: str) -> str:
    if re.search("(s|x|ch|sh)$", kind):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if re.search("[^aeiou]y$", kind) else f"{kind}s"


async def _no_access() -> Access:
    raise InputError(["a dump has no API server"])

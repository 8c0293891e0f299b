"""What an audit keeps of a cluster: its nodes, and the decision on each object.

A decision is made while the object is read. A cluster can have tens of thousands of Pods, and an
object can have megabytes. What is kept of one has a limit, and does not include its content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from policies.decision import Decision, Verdict
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes import core_v1
from policies.kubernetes.claims import implicit_resource
from policies.kubernetes.objects import JSONObject, ObjectKey, mapping
from policies.kubernetes.paths import field_path
from policies.kubernetes.pod import Pod, host_peaks
from policies.kubernetes.scheduling import FENCING_EFFECTS, tolerates
from policies.kubernetes.workload import Workload
from policies.policy import Actions, Policy
from policies.pool_nodes import nodes_of_pools
from policies.reach import CONTROLLERS, MIRROR_ANNOTATION
from policies.requests import Scope, device_peaks
from webhook.cluster.judge import ContainerUser, Judgement, judge
from webhook.cluster.kinds import POD, Kind
from webhook.cluster.listed import ListedCluster
from webhook.cluster.objects import Reader
from webhook.tools import custom_resources
from webhook.tools.audit.owners import Owned, OwnedMetadata, Owners
from webhook.tools.audit.pod_status import PodStatus, PodTimes
from webhook.tools.audit.stack import StackProblem, unreached_by
from webhook.wording import MOST_NAMED

_MOST_TEXT = 32 * 1024
"""The characters of findings that are kept of an object."""

_OPERATOR = "system:serviceaccount::"
_MISSING: Mapping[str, str] = {
    "nodes": "spec.nodeName names a node, and the nodes are unknown",
    "namespaces": "the labels of its namespace decide whether it may use a pool, and are unknown",
    "resourceclaims": "it uses resource claims, and they or their templates are unknown",
}
"""What a decision lacks if a collection is not listed."""

_MOST_SENTENCE = 2000
_MOST_PARTS = 100
_MOST_CONTENT = 64 * 1024
"""The size of an object whose content is kept because a report shows its mutations."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An object, and the decision on it.

    ``details`` are those of the findings, with paths as in a Pod. ``users`` are the containers that
    get another user, and ``mutations`` the rules that change the object. An object of the
    ``history`` is an old ReplicaSet or an ended Job. ``unjudged`` says why the verdict may be
    another one: what is unknown, malformed, or failed.
    """

    kind: Kind
    owned: Owned
    decision: Decision
    verdict: Verdict
    details: tuple[str, ...] = ()
    users: tuple[ContainerUser, ...] = ()
    mutations: tuple[str, ...] = ()
    is_history: bool = False
    unjudged: tuple[str, ...] = ()
    is_undecided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod(Judged):
    """A Pod that has not ended. ``node`` is empty for a Pod that is not scheduled.

    ``devices`` counts the reserved devices by extended resource, or else the implicit resource name
    of their DeviceClass. ``is_agent`` is true for node
    agents: Pods of a DaemonSet, and static Pods. ``lacks_mutations`` is true for a Pod that was
    created without the mutations of the policy. ``may_return`` is true if the scheduler can place
    the Pod on the same node when it is created again. ``user`` is the lowest user ID of its running
    containers, so that root counts; ``None`` where the node does not report it. ``host`` are the
    CPU and the memory that the scheduler reserves for the Pod, in nanos.
    """

    node: str
    devices: dict[str, int]
    is_agent: bool
    lacks_mutations: bool
    may_return: bool
    user: int | None
    host: tuple[int, int]
    times: PodTimes
    likeness: str = ""
    """Of a Pod without an owner: its images."""


@dataclass(slots=True)
class PodGroup:
    """A Pod that an audit keeps, and further Pods of its owner that it need not tell apart.

    ``names`` has the first of their names, and ``count`` their number.
    """

    first: RunningPod
    names: list[str] = field(default_factory=list)
    count: int = 0


class NodeDetails(NamedTuple):
    """What an audit reads of a Node beyond what placement depends on."""

    uid: str = ""
    is_cordoned: bool = False


@dataclass(slots=True)
class Inventory:
    """The listed objects. ``reader`` notes what is not audited."""

    reader: Reader
    policy: Policy
    cluster: ListedCluster
    today: date
    node_details: dict[str, NodeDetails] = field(default_factory=dict)
    workloads: list[Judged] = field(default_factory=list)
    pods: dict[object, PodGroup] = field(default_factory=dict)
    unmutated: list[str] = field(default_factory=list)
    """The running Pods that lack what the policy adds, as namespace/name."""
    owners: Owners = field(default_factory=Owners)
    stack: list[StackProblem] = field(default_factory=list)
    used_exceptions: set[int] = field(default_factory=set)
    """The exceptions of the policy, by number, that cover a finding."""
    facts: Facts = field(default_factory=Facts)
    """The facts of the whole cluster; ``facts_in`` returns those of a namespace."""

    def facts_in(self, namespace: str) -> Facts:
        return replace(self.facts, namespace_labels=self.labels_of(namespace))

    def labels_of(self, namespace: str) -> Mapping[str, str] | None:
        return self.cluster.labels_of(namespace)

    def actions_in(self, namespace: str) -> Actions:
        return self.policy.actions_in(namespace, self.labels_of(namespace))

    def take_excepted(self, judged: Judged) -> None:
        """Record the exceptions that cover a finding on an object."""
        for finding in judged.decision.excepted:
            self.take_exception(finding.rule, judged.owned)

    def take_exception(self, rule: str, owned: Owned) -> None:
        """Record the exceptions that cover a finding of this rule on an object."""
        found = rule, owned.namespace, owned.key[1], owned.name, self.labels_of(owned.namespace)
        self.used_exceptions.update(
            index for index, each in enumerate(self.policy.exceptions) if each.covers(*found)
        )

    def take_pod(self, pod: RunningPod) -> None:
        """Keep a Pod, or count it with those that reports do not tell apart.

        These are Pods of one owner, without devices and on no node of a pool. A cluster can have a
        million.
        """
        owned, key = pod.owned, object()
        if not pod.devices and not self._is_of_a_pool(pod.node) and self.owners.direct(owned):
            said = id(pod.decision), pod.verdict, pod.details, pod.users, pod.mutations
            key = owned.namespace, owned.owner, said, pod.unjudged, pod.user
        group = self.pods.setdefault(key, PodGroup(pod))
        group.count += 1
        if group.count <= MOST_NAMED:
            group.names.append(owned.name)
        if pod.lacks_mutations:
            self.unmutated.append(owned.full_name)

    def _is_of_a_pool(self, name: str) -> bool:
        nodes = self.facts.nodes
        if nodes is None or nodes.get(name) is None:
            return False
        return bool(nodes_of_pools(self.policy, nodes).all >> nodes.number(name) & 1)


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Item(msgspec.Struct, frozen=True):
    """The part of a Pod that rules do not read."""

    metadata: OwnedMetadata
    spec: _Spec = _Spec()
    status: PodStatus = PodStatus()


_items = msgspec.json.Decoder(_Item)
_pods = msgspec.json.Decoder(core_v1.PodObject)


class Judge:
    """Decides on the objects of a cluster as if they were created today."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._policy = inventory.policy
        self._shared: dict[Decision, Decision] = {}
        """Decisions by themselves: those on the Pods of a workload are often equal."""
        self._counted: set[ObjectKey] = set()
        """The claims whose devices are counted."""

    def workload(self, obj: JSONObject, kind: Kind) -> Judged:
        """Decide on a workload of a list, whose items have no apiVersion and kind."""
        metadata = msgspec.convert(obj["metadata"], OwnedMetadata)
        spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
        inventory = self._inventory
        owned = inventory.owners.owned(metadata, kind.key, spec)
        typed = _typed(obj, kind)
        is_history = _is_history(owned, spec, status)

        def judge_parts(request: Request) -> Judgement:
            # What is applied elsewhere is not in the namespace of its wrapper.
            request = replace(request, namespace=owned.namespace and "default")
            facts_in = inventory.facts_in
            return custom_resources.judged(typed, self._policy, request, facts_in)[0]

        judgement, unjudged = self._judge(judge_parts, owned)
        if not judgement.is_decided:
            decision = Decision(_identity(kind), has_template=False)
            return Judged(kind, owned, decision, "skipped", (), (), (), is_history, unjudged, True)
        if kind.key == ("apps", "DaemonSet") and (nodes := inventory.facts.nodes) is not None:
            inventory.stack += unreached_by(self._policy, [typed], nodes)
        kept = self._kept(judgement.decision, kind, owned, typed)
        paths = [
            field_path(template.spec_path) for template in custom_resources.find(typed).templates
        ]
        details = tuple(_with_paths_of_a_pod(finding.detail, paths) for finding in kept.findings)
        verdict, users = judgement.decision.verdict, judgement.other_users
        rules = judgement.mutations
        return Judged(kind, owned, kept, verdict, details, users, rules, is_history, unjudged)

    def pod(self, item: msgspec.Raw) -> None:
        """Decide on a Pod of a list."""
        inventory, known = self._inventory, _items.decode(item)
        owned = inventory.owners.owned(known.metadata, POD.key, {})
        node, owner = known.spec.node_name, inventory.owners.direct(owned)
        is_mirror = self._is_mirror(known.metadata, owned, node)
        account = f"system:node:{node}" if is_mirror else ""
        judged: list[Workload] = []

        def read() -> Workload:
            judged.append(_workload_of(item))
            return judged[-1]

        facts = inventory.facts_in(owned.namespace)
        judgement, unjudged = self._judge(
            lambda request: judge(read, self._policy, request, facts), owned, account
        )
        if not judgement.is_decided:
            inventory.reader.skipped += (
                f"Pod {owned.full_name}: not audited: {reason}" for reason in unjudged
            )
            return
        [pod] = judged[-1].pods()
        decision = judgement.decision
        lacks_mutations = bool(decision.operations)
        # Mutations are shown of a topmost owner only.
        content = _content(item) if lacks_mutations and owner is None else None
        kept = self._kept(decision, POD, owned, content)
        details = tuple(finding.detail for finding in kept.findings)
        is_of_daemon_set = owner is not None and owner.key == ("apps", "DaemonSet")
        running = RunningPod(
            POD,
            owned,
            kept,
            decision.verdict,
            details,
            judgement.other_users,
            judgement.mutations,
            unjudged=unjudged,
            node=node,
            devices=self._devices_of(pod, owned, known.status),
            is_agent=is_mirror or is_of_daemon_set,
            lacks_mutations=lacks_mutations,
            may_return=self._may_return(pod, node),
            user=known.status.user,
            host=host_peaks(pod.spec),
            likeness="" if owner else _shortened(" ".join(_images(pod))),
            times=known.status.times(known.metadata.creation_timestamp),
        )
        inventory.take_excepted(running)
        inventory.take_pod(running)

    def _may_return(self, pod: Pod, node: str) -> bool:
        """Return whether the Pod, with its mutations, can be placed on the node again."""
        nodes = self._inventory.facts.nodes
        known = nodes.get(node) if nodes is not None else None
        if nodes is None or known is None:
            return False
        is_selected = pod.selected_nodes(nodes).all >> nodes.number(node) & 1
        return bool(is_selected) and all(
            any(tolerates(each, taint) for each in pod.spec.tolerations or ())
            for taint in known.taints
            if taint.effect in FENCING_EFFECTS
        )

    def _devices_of(self, pod: Pod, owned: Owned, status: PodStatus) -> dict[str, int]:
        """Return the devices that the Pod reserves, by resource and by claim.

        Those of a class count under the extended resource that it provides. Those of a claim that
        Pods share count for the first of them. The status names the claim of a template, which a
        PodGroup may share. The claim for an extended resource counts as the resource.
        """
        facts, devices = self._inventory.facts, Counter(device_peaks(pod, self._policy))
        names = {name: resource for resource, name in facts.extended_resource_classes.items()}
        scope = Scope(self._policy, Request(namespace=owned.namespace), facts)
        for named in scope.claims(pod):
            made = status.generated_claims.get(named.name) if named.is_template else None
            key = (owned.namespace, made or named.claim_name)
            is_single = named.is_template and not made
            claim = named.claim if is_single else facts.claims.get(key, named.claim)
            if claim is None or (key in self._counted and not is_single):
                continue
            if not is_single:
                self._counted.add(key)
            for ask in (asks[0] for asks in claim.asks if asks):
                if ask.device_class in self._policy.pools_of_class and not ask.is_admin:
                    name = names.get(ask.device_class, "")
                    is_known = bool(name and self._policy.pools_of_resource(name))
                    own = name if is_known else implicit_resource(ask.device_class)
                    devices[own] += ask.number
        return dict(devices)

    def _judge(
        self, judged: Callable[[Request], Judgement], owned: Owned, account: str = ""
    ) -> tuple[Judgement, tuple[str, ...]]:
        """Judge an object as the webhook would, and return what is not certain about that.

        What is not listed counts neither for nor against the object.
        """
        inventory, namespace = self._inventory, owned.namespace
        facts = inventory.facts_in(namespace)
        request = Request(
            namespace=namespace,
            username=account or self._account_of(owned),
            today=inventory.today,
            fail_closed=True,
        )
        judgement = judged(request)
        title = f"{owned.key[1]} {owned.full_name}"
        inventory.reader.failing += [title] * bool(judgement.bugs)
        if judgement.is_decided:
            inventory.reader.skipped += (f"{title}: {bug}" for bug in judgement.bugs)
        unknown = inventory.cluster.unknown
        if facts.namespace_labels is None:
            unknown |= {"namespaces"}
        unjudged = [*judgement.bugs]
        if missing := unknown & {*judgement.decision.missing_facts}:
            judgement = judged(replace(request, fail_closed=False))
            if judgement.decision.allowed:
                unjudged += (_MISSING[fact] for fact in sorted(missing))
        if judgement.error is not None:
            unjudged.append(_shortened(str(judgement.error)))
        parts = judgement.decision.unjudged[:_MOST_PARTS]
        unjudged += (f"{field_path(part.path)}: {part.reason}" for part in parts)
        return judgement, tuple(dict.fromkeys(unjudged))

    def _account_of(self, owned: Owned) -> str:
        """Return the account that creates the object for its owner; empty without one.

        An operator has an account of its own, which is unknown.
        """
        owner = self._inventory.owners.direct(owned)
        if owner is not None and owner.key in CONTROLLERS:
            return CONTROLLERS[owner.key]
        reference = owned.owner
        return _OPERATOR if reference and reference.key not in CONTROLLERS else ""

    def _kept(
        self, decision: Decision, kind: Kind, owned: Owned, content: JSONObject | None
    ) -> Decision:
        """Return the part of a decision that is kept; with the content, if it is mutated."""
        title = f"{kind.kind} {owned.full_name}"
        source, operations = _identity(kind), decision.operations if content else ()
        if operations:
            source = msgspec.json.encode(content)
            size = max(len(source), len(msgspec.json.encode(operations)))
            if size > _MOST_CONTENT:
                source, operations = _identity(kind), ()
                self._inventory.reader.skipped.append(
                    f"{title}: its mutations are not shown, because it is too large"
                )
        findings, excepted = _first(decision.findings), _first(decision.excepted)
        if rest := len(decision.findings) - len(findings):
            self._inventory.reader.skipped.append(
                f"{title}: {rest:,} further findings are not shown"
            )
        kept = replace(
            decision,
            source=source,
            operations=operations,
            mutations=decision.mutations if operations else (),
            findings=findings,
            excepted=excepted,
            unjudged=tuple(part._replace(value=None) for part in decision.unjudged[:_MOST_PARTS]),
            failures=(),
        )
        return kept if operations else self._shared.setdefault(kept, kept)

    def _is_mirror(self, metadata: OwnedMetadata, owned: Owned, node: str) -> bool:
        """Return whether it is a mirror Pod: it has the annotation, and its node is the owner.

        Source: ``NewBasicMirrorClient`` in ``k8s.io/kubernetes/pkg/kubelet/pod/mirror_client.go``.
        """
        owner, details = owned.owner, self._inventory.node_details.get(node)
        return (
            MIRROR_ANNOTATION in (metadata.annotations or {})
            and owner is not None
            and owner.kind == "Node"
            and details is not None
            and (owner.uid == details.uid or (not details.uid and owner.name == node))
        )


def _identity(kind: Kind) -> bytes:
    return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind})


def _typed(obj: JSONObject, kind: Kind) -> JSONObject:
    # managedFields are half of a small object, and no rule reads them.
    obj["metadata"].pop("managedFields", None)
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


def _workload_of(item: msgspec.Raw) -> Workload:
    """Return the Pod as its author wrote it: without the node that the scheduler has set."""
    try:
        pod = _pods.decode(item)
    except msgspec.DecodeError:
        # Malformed: from parsed JSON, the error has a path.
        return Workload(_content(item))
    pod.api_version, pod.kind, pod.status = POD.version, POD.kind, None
    if pod.spec is not None:
        pod.spec.node_name = None
    return Workload(pod)


def _content(item: msgspec.Raw) -> JSONObject:
    """Return the Pod as ``_workload_of`` does, as parsed JSON."""
    obj = _typed(msgspec.json.decode(item, type=JSONObject), POD)
    obj.pop("status", None)
    obj["spec"].pop("nodeName", None)
    return obj


def _is_history(owned: Owned, spec: JSONObject, status: JSONObject) -> bool:
    if owned.key == ("apps", "ReplicaSet"):
        return owned.owner is not None and not spec.get("replicas")
    if owned.key == ("batch", "Job"):
        return any(
            condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
    return False


def _with_paths_of_a_pod(detail: str, paths: Iterable[str]) -> str:
    for path in paths:
        detail = detail.replace(path, "spec")
    return detail


def _images(pod: Pod) -> Iterator[str]:
    return (container.spec.image or "" for container in pod.containers)


def _first(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings up to a limit, and at least one of each rule."""
    kept: list[Finding] = []
    size = 0
    rules: set[str] = set()
    for finding in findings:
        if size < _MOST_TEXT or finding.rule not in rules:
            short = replace(
                finding,
                path=_shortened(finding.path),
                detail=_shortened(finding.detail),
                remediation=_shortened(finding.remediation),
                subjects=frozenset(),
            )
            kept.append(short)
            rules.add(finding.rule)
            size += len(short.message)
    return tuple(kept)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SENTENCE else f"{text[:_MOST_SENTENCE]}..."

"""What an audit keeps of a cluster: its nodes, and the decision on each object.

A decision is made while the object is read. A cluster can have tens of thousands of Pods, and an
object can have megabytes. What is kept of one has a limit, and does not include its content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from policies.decision import Decision, Verdict
from policies.engine import decide
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes import core_v1
from policies.kubernetes.claims import implicit_resource
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject, MalformedObjectError, ObjectKey
from policies.kubernetes.paths import field_path
from policies.kubernetes.pod import Pod, host_peaks
from policies.kubernetes.quantity import InvalidQuantityError
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from policies.reach import DAEMON_SET_CONTROLLER, MIRROR_ANNOTATION
from policies.requests import Scope, device_peaks
from webhook.controller.text.objects import ALWAYS_EXCLUDED
from webhook.tools import custom_resources
from webhook.tools.audit.kinds import NODE, POD, GroupKind, Kind
from webhook.tools.audit.move import Move
from webhook.tools.audit.owners import Owned, OwnedMetadata, Owners
from webhook.tools.audit.pod_status import PodStatus, PodTimes
from webhook.tools.audit.stack import Unreached, unreached_by

_MOST_TEXT = 32 * 1024
"""The characters of findings that are kept of an object."""

_MOST_SENTENCE = 2000
_MOST_PARTS = 100
_MOST_CONTENT = 64 * 1024
"""The size of an object whose content is kept because a report shows its mutations."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An object, and the decision on it.

    ``details`` are those of the findings, with paths as in a Pod. An object of the ``history`` is
    an old ReplicaSet or an ended Job. ``error`` is the problem of a malformed object.
    """

    kind: Kind
    owned: Owned
    decision: Decision
    verdict: Verdict
    details: tuple[str, ...] = ()
    is_history: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod(Judged):
    """A Pod that has not ended. ``node`` is empty for a Pod that is not scheduled.

    ``devices`` counts the reserved devices by extended resource, or else the implicit resource name
    of their DeviceClass. ``is_agent`` is true for node
    agents: Pods of a DaemonSet, and static Pods. ``lacks_mutations`` is true for a Pod that was
    created without the mutations of the policy. ``user`` is the lowest user ID of its running
    containers, so that root counts; ``None`` where the node does not report it. ``host`` are the
    CPU and the memory that the scheduler reserves for the Pod, in nanos.
    """

    node: str
    devices: dict[str, int]
    is_agent: bool
    lacks_mutations: bool
    user: int | None
    host: tuple[int, int]
    times: PodTimes


class NodeDetails(NamedTuple):
    """What an audit reads of a Node beyond what placement depends on.

    ``room`` is the CPU and the memory that the node offers, in nanos.
    """

    uid: str = ""
    is_cordoned: bool = False
    room: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Inventory:
    """The listed objects. ``skipped`` has a sentence for each kind or object that is not
    audited."""

    nodes: NodeIndex | None = None
    node_details: dict[str, NodeDetails] = field(default_factory=dict)
    workloads: list[Judged] = field(default_factory=list)
    owners: Owners = field(default_factory=Owners)
    skipped: list[str] = field(default_factory=list)
    unreached: list[Unreached] = field(default_factory=list)
    excepted: set[tuple[str, str, str, str]] = field(default_factory=set)
    """Rule, namespace, kind and name of each finding that an exception covers."""
    facts: Facts = field(default_factory=Facts)
    """The facts of the whole cluster; ``facts_in`` returns those of a namespace."""
    today: date | None = None
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    is_whole: bool = True
    """Whether all objects were listed that decisions on workloads depend on."""

    @property
    def settled(self) -> frozenset[GroupKind]:
        """The kinds whose objects were all listed: an object that was not found does not exist.

        A finding of a Pod is reported at its owner, so without Pods no workload is complete.
        """
        nodes = {NODE} if self.nodes is not None else set()
        workloads = {*self.owners.listed, POD.key} if self.is_whole else set()
        return frozenset(nodes | workloads)

    def facts_in(self, namespace: str) -> Facts:
        return replace(self.facts, namespace_labels=self.namespace_labels.get(namespace))

    def take_excepted(self, judged: Judged) -> None:
        """Record the findings on an object that an exception covers."""
        owned = judged.owned
        self.excepted.update(
            (finding.rule, owned.namespace, judged.kind.kind, owned.name)
            for finding in judged.decision.excepted
        )

    def not_judged(self, kind: Kind, owned: Owned, problem: str) -> None:
        """Record that an object is malformed, so that no rule can read it."""
        self.skipped.append(f"{kind.kind} {owned.full_name}: not audited: {problem}")


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

    def __init__(self, inventory: Inventory, policy: Policy, move: Move | None = None) -> None:
        self._inventory = inventory
        self._policy = policy
        self._move = move
        self._shared: dict[Decision, Decision] = {}
        """Decisions by themselves: those on the Pods of a workload are often equal."""
        self._counted: set[ObjectKey] = set()
        """The claims whose devices are counted."""

    def workload(self, obj: JSONObject, kind: Kind) -> Judged:
        """Decide on a workload of a list, whose items have no apiVersion and kind."""
        metadata = msgspec.convert(obj["metadata"], OwnedMetadata)
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        owned = self._inventory.owners.owned(metadata, kind.key, spec)
        typed = _typed(obj, kind)
        is_history = _is_history(owned, spec, status)
        try:
            decision = self._decide(custom_resources.workload(typed, self._policy), owned.namespace)
        except MalformedObjectError as error:
            nothing = Decision(_identity(kind), has_template=False)
            problem = _shortened(str(error))
            return Judged(kind, owned, nothing, nothing.verdict, (), is_history, problem)
        if kind.key == ("apps", "DaemonSet") and (nodes := self._inventory.nodes) is not None:
            self._inventory.unreached += unreached_by(self._policy, [typed], nodes)
        if not is_history and self._inventory.owners.direct(owned) is None:
            self._note(kind, owned, custom_resources.workload(typed, self._policy))
        kept = self._kept(decision, kind, owned, typed)
        paths = [
            field_path(template.spec_path) for template in custom_resources.find(typed).templates
        ]
        details = tuple(_with_paths_of_a_pod(finding.detail, paths) for finding in kept.findings)
        return Judged(kind, owned, kept, decision.verdict, details, is_history)

    def pod(self, item: msgspec.Raw) -> RunningPod | None:
        """Decide on a Pod of a list; return None if it is malformed."""
        inventory, known = self._inventory, _items.decode(item)
        owned = inventory.owners.owned(known.metadata, POD.key, {})
        node, owner = known.spec.node_name, inventory.owners.direct(owned)
        username = ""
        if owner is not None and owner.key == ("apps", "DaemonSet"):
            username = DAEMON_SET_CONTROLLER
        elif self._is_mirror(known.metadata, owned, node):
            username = f"system:node:{node}"
        try:
            workload = _workload_of(item)
            [pod] = workload.pods()
            devices, host = self._devices_of(pod, owned, known.status), host_peaks(pod.spec)
            times = known.status.times(known.metadata.creation_timestamp)
            decision = self._decide(workload, owned.namespace, username)
        except (MalformedObjectError, InvalidQuantityError) as error:
            inventory.not_judged(POD, owned, _shortened(str(error)))
            return None
        if owner is None:
            self._note(POD, owned, workload)
        lacks_mutations = bool(decision.operations)
        # Mutations are shown of a topmost owner only.
        content = _content(item) if lacks_mutations and owner is None else None
        kept = self._kept(decision, POD, owned, content)
        details = tuple(finding.detail for finding in kept.findings)
        running = RunningPod(
            POD,
            owned,
            kept,
            decision.verdict,
            details,
            node=node,
            devices=devices,
            is_agent=bool(username),
            lacks_mutations=lacks_mutations,
            user=known.status.user,
            host=host,
            times=times,
        )
        inventory.take_excepted(running)
        return running

    def _note(self, kind: Kind, owned: Owned, workload: Workload) -> None:
        """Note what a topmost owner depends on."""
        if self._move is not None:
            title, facts = f"{kind.kind} {owned.full_name}", self._inventory.facts
            for pod in workload.pods():
                self._move.take(title, pod, owned.namespace, facts)

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
            for device_class, count in claim.devices:
                if device_class in self._policy.pools_of_class:
                    name = names.get(device_class, "")
                    is_known = bool(name and self._policy.pools_of_resource(name))
                    devices[name if is_known else implicit_resource(device_class)] += count
        return dict(devices)

    def _decide(self, workload: Workload, namespace: str, username: str = "") -> Decision:
        return decide(
            workload,
            self._policy,
            Request(namespace=namespace, username=username, today=self._inventory.today),
            self._inventory.facts_in(namespace),
            excluded_namespaces=ALWAYS_EXCLUDED,
        ).checked()

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
                self._inventory.skipped.append(
                    f"{title}: its mutations are not shown, because it is too large"
                )
        for failure in decision.failures:
            bug = f"{failure.error!r}, a bug of gpufence"
            self._inventory.skipped.append(f"{title}: audited without {failure.rule}: {bug}")
        findings, excepted = _first(decision.findings), _first(decision.excepted)
        if rest := len(decision.findings) - len(findings):
            self._inventory.skipped.append(f"{title}: {rest:,} further findings are not shown")
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
            and details.uid == owner.uid != ""
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

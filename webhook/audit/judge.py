"""The decision on each object, made while the object is read.

A cluster can have tens of thousands of Pods, and an object can have megabytes. What is kept of one
has a limit, and does not include its content.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from policies.decision import Decision
from policies.engine import decide
from policies.exemptions import ALWAYS_EXCLUDED
from policies.facts import Request
from policies.finding import Finding
from policies.kubernetes import core_v1
from policies.kubernetes.objects import JSONObject, MalformedObjectError
from policies.kubernetes.template import field_path
from policies.kubernetes.templates import templates
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from policies.reach import DAEMON_SET_CONTROLLER, MIRROR_ANNOTATION
from policies.requests import device_peaks
from webhook.audit.inventory import Inventory, Judged, RunningPod
from webhook.audit.kinds import POD, Kind
from webhook.audit.owners import ObjectMetadata, Owned

_MOST_TEXT = 32 * 1024
"""The characters of findings that are kept of an object."""

_MOST_SENTENCE = 2000
_MOST_PARTS = 100
_MOST_CONTENT = 64 * 1024
"""The size of an object whose content is kept because a report shows its mutations."""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Item(msgspec.Struct, frozen=True):
    """The part of a Pod that rules do not read."""

    metadata: ObjectMetadata
    spec: _Spec = _Spec()


_items = msgspec.json.Decoder(_Item)
_pods = msgspec.json.Decoder(core_v1.PodObject)


class Judge:
    """Decides on the objects of a cluster as if they were created today."""

    def __init__(self, inventory: Inventory, policy: Policy) -> None:
        self._inventory = inventory
        self._policy = policy
        self._shared: dict[Decision, Decision] = {}
        """Decisions by themselves: those on the Pods of a workload are often equal."""

    def workload(self, obj: JSONObject, kind: Kind) -> Judged:
        """Decide on a workload of a list, whose items have no apiVersion and kind."""
        metadata = msgspec.convert(obj["metadata"], ObjectMetadata)
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        owned = self._inventory.owners.owned(metadata, kind.key, spec)
        typed = _typed(obj, kind)
        is_history = _is_history(owned, spec, status)
        try:
            decision = self._decide(Workload(typed), owned.namespace)
        except MalformedObjectError as error:
            nothing = Decision(_identity(kind), has_template=False)
            problem = _shortened(str(error))
            return Judged(kind, owned, nothing, nothing.verdict, (), is_history, problem)
        kept = self._kept(decision, kind, owned, typed)
        paths = [field_path(template.spec_path) for template in templates(typed)]
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
            devices = device_peaks(pod, self._policy)
            decision = self._decide(workload, owned.namespace, username)
        except MalformedObjectError as error:
            inventory.not_judged(POD, owned, _shortened(str(error)))
            return None
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
        )
        inventory.take_excepted(running)
        return running

    def _decide(self, workload: Workload, namespace: str, username: str = "") -> Decision:
        return decide(
            workload,
            self._policy,
            Request(namespace=namespace, username=username, today=self._inventory.today),
            self._inventory.facts_in(namespace),
            excluded_namespaces=ALWAYS_EXCLUDED,
        )

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
            unjudged=decision.unjudged[:_MOST_PARTS],
        )
        return kept if operations else self._shared.setdefault(kept, kept)

    def _is_mirror(self, metadata: ObjectMetadata, owned: Owned, node: str) -> bool:
        """Return whether it is a mirror Pod: it has the annotation, and its node is the owner.

        Source: ``NewBasicMirrorClient`` in ``k8s.io/kubernetes/pkg/kubelet/pod/mirror_client.go``.
        """
        owner = owned.owner
        return (
            MIRROR_ANNOTATION in (metadata.annotations or {})
            and owner is not None
            and owner.kind == "Node"
            and bool(node)
            and self._inventory.node_uids.get(node) == owner.uid
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

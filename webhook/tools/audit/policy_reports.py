"""Findings as PolicyReports in the cluster, for dashboards.

Sources: ``wgpolicyk8s.io/v1alpha2`` (Kubernetes' policy working group) and its successor,
``openreports.io/v1alpha1``. gpufence writes the newer one that the cluster has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Container, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from policies.finding import Action, Finding
from policies.kubernetes.objects import JSONObject
from webhook.cluster.kinds import GroupKind
from webhook.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from webhook.kube.listing import list_all
from webhook.kube.writer import KubeWriter
from webhook.tools.audit.cluster_audit import Audit
from webhook.wording import counted

SOURCE = "gpufence"
_LABEL = "app.kubernetes.io/managed-by"
_MANAGER = "gpufence-audit"
_RESULTS: dict[Action, tuple[str, str]] = {
    "enforce": ("fail", "high"),
    "warn": ("warn", "medium"),
    "audit": ("warn", "low"),
    "off": ("skip", "low"),
}
"""Result and severity of a finding, by its action."""


_KINDS = {"openreports.io/v1alpha1": "Report", "wgpolicyk8s.io/v1alpha2": "PolicyReport"}
"""The kind of a namespaced report, by API version. ``Cluster`` precedes it for cluster scope."""

_MOST_BYTES = 128 * 1024
"""No audit writes a larger report: the findings of an object have a limit."""

_COUNTED = ("created", "changed", "unchanged", "deleted")
_SPECIAL = {
    "deleting": "not written, because their objects are being deleted",
    "rejected": "rejected",
    "kept": "kept, because their objects were not audited",
}
_REJECTED = (400, FORBIDDEN, CONFLICT, 413, 422)
"""RBAC or a quota forbids the report, it does not match its definition, or is too large."""


class Published(NamedTuple):
    """The result of writing reports: a ``summary``, and the places with rejected reports."""

    summary: str
    rejections: tuple[str, ...] = ()


async def publish(api: KubeWriter, audit: Audit, now: datetime) -> Published:
    """Write the findings of the audit to the cluster.

    Each object with findings has one report, which it owns. Reports that no longer apply are
    deleted, if the audit has seen their objects. Unchanged reports are not written, and no reports
    are written in a namespace that is being deleted.

    Raises:
        ClusterError: reports cannot be listed, or the cluster cannot be read.
    """
    version = await _served(api)
    if version is None:
        return Published(
            f"No PolicyReports written: the cluster has neither {' nor '.join(_KINDS)}."
        )
    unread = {
        subject.owned.uid
        for subject in audit.subjects
        if subject.is_undecided or subject.decision.unjudged
    }
    counts: Counter[str] = Counter()
    rejected: defaultdict[str, list[str]] = defaultdict(list)

    async def attempt(report: JSONObject, change: Awaitable[str]) -> None:
        try:
            counts[await change] += 1
        except ApiError as error:
            if _is_deleting(error):
                counts["deleting"] += 1
            elif error.status in _REJECTED:
                counts["rejected"] += 1
                namespace = report["metadata"].get("namespace")
                place = f"namespace {namespace}" if namespace else "the cluster scope"
                rejected[place].append(str(error))
            else:
                raise

    kind = _KINDS[version]
    for each, found in ((kind, _workloads(audit)), (f"Cluster{kind}", _nodes(audit))):
        resource = f"{each.lower()}s"
        listed = await list_all(
            api,
            f"/apis/{version}/{resource}",
            msgspec.Raw,
            _stored,
            labels=f"{_LABEL}={_MANAGER}",
        )
        present = dict(filter(None, listed))
        for reference, findings in found:
            report = _report(version, each, reference, findings, now)
            text = present.pop(report["metadata"]["name"], None)
            path = _path(version, resource, report)
            await attempt(report, _write(api, path, report, text))
        for stale in map(msgspec.json.decode, present.values()):
            if _is_over(stale, audit.settled, unread):
                await attempt(stale, _delete(api, _path(version, resource, stale)))
            else:
                counts["kept"] += 1
    return Published(
        _sentence(version, counts),
        tuple(
            f"In {place}, the API server rejects {counted(len(errors), 'report')}: {errors[0]}"
            for place, errors in rejected.items()
        ),
    )


def _sentence(version: str, counts: Counter[str]) -> str:
    parts = [", ".join(f"{counts[what]} {what}" for what in _COUNTED)]
    parts += [f"{counts[what]} {meaning}" for what, meaning in _SPECIAL.items() if counts[what]]
    return f"Reports of {version}: {'; '.join(parts)}."


async def _served(api: KubeWriter) -> str | None:
    for version in _KINDS:
        if await api.read(f"/apis/{version}") is not None:
            return version
    return None


def _workloads(audit: Audit) -> Iterator[tuple[JSONObject, Iterable[Finding]]]:
    """Yield a reference to each topmost owner with findings, and the findings."""
    for subject in audit.subjects:
        if findings := subject.findings:
            owned = subject.owned
            reference = _reference(
                subject.kind.api_version, subject.kind.kind, owned.name, owned.uid
            )
            yield reference | {"namespace": owned.namespace}, findings


def _nodes(audit: Audit) -> Iterator[tuple[JSONObject, Iterable[Finding]]]:
    for node in audit.nodes:
        yield _reference("v1", "Node", node.name, node.uid), node.findings


def _reference(api_version: str, kind: str, name: str, uid: str) -> JSONObject:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def _is_over(report: JSONObject, settled: Container[GroupKind], unread: Container[str]) -> bool:
    """Return whether the audit has seen that an object has no findings any more.

    It has not if its kind was not listed completely, or if the object is malformed.
    """
    scope = report.get("scope") or {}
    group, _, _ = scope.get("apiVersion", "").rpartition("/")
    return (group, scope.get("kind", "")) in settled and scope.get("uid") not in unread


def _report(
    version: str, kind: str, scope: JSONObject, findings: Iterable[Finding], now: datetime
) -> JSONObject:
    owner = {key: value for key, value in scope.items() if key != "namespace"}
    metadata: JSONObject = {
        "name": f"{SOURCE}-{scope['uid']}",
        "labels": {_LABEL: _MANAGER},
        "ownerReferences": [owner],
    }
    if "namespace" in scope:
        metadata["namespace"] = scope["namespace"]
    results = [_result(finding, now) for finding in findings]
    counts = Counter(result["result"] for result in results)
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "scope": scope,
        "summary": {name: counts[name] for name in ("pass", "fail", "warn", "error", "skip")},
        "results": results,
    }


def _result(finding: Finding, now: datetime) -> JSONObject:
    result, severity = _RESULTS[finding.action]
    return {
        "source": SOURCE,
        "policy": SOURCE,
        "rule": finding.rule,
        "category": "GPU nodes",
        "result": result,
        "severity": severity,
        "message": finding.message,
        "properties": {"action": finding.action, "path": finding.path},
        "timestamp": {"seconds": int(now.timestamp()), "nanos": 0},
    }


async def _write(api: KubeWriter, path: str, report: JSONObject, live: bytes | None) -> str:
    """Write a report unless it is unchanged, and return what was done."""
    if live is not None and _content(msgspec.json.decode(live)) == _content(report):
        return "unchanged"
    await api.apply(path, report)
    return "created" if live is None else "changed"


async def _delete(api: KubeWriter, path: str) -> str:
    await api.delete(path)
    return "deleted"


def _stored(item: msgspec.Raw) -> tuple[str, bytes] | None:
    """Return name and JSON of a report; of a large one, without results, which are written again.

    Return None if no audit wrote it: not every API server applies the label selector.
    """
    report = msgspec.json.decode(item)
    metadata = report["metadata"]
    if (metadata.get("labels") or {}).get(_LABEL) != _MANAGER:
        return None
    if len(bytes(item)) > _MOST_BYTES:
        report.pop("results", None)
    return metadata["name"], msgspec.json.encode(report)


def _is_deleting(error: ApiError) -> bool:
    """Return whether a report failed because its object or its namespace is being deleted.

    Source: ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``, which answers 403.
    """
    return error.status == NOT_FOUND or "because it is being terminated" in str(error)


def _content(report: JSONObject) -> Any:
    """Return the content of a report without timestamps."""
    results = report.get("results") or ()
    return report.get("scope"), [{**result, "timestamp": None} for result in results]


def _path(version: str, resource: str, report: JSONObject) -> str:
    metadata = report["metadata"]
    namespace = metadata.get("namespace")
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{version}/{where}{resource}/{metadata['name']}"

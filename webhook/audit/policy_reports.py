"""Findings as PolicyReports in the cluster, for dashboards.

Sources: ``wgpolicyk8s.io/v1alpha2`` (Kubernetes' policy working group) and its successor,
``openreports.io/v1alpha1``. gpufence writes the newer one that the cluster has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from policies.finding import Action, Finding
from policies.kubernetes.objects import JSONObject
from webhook.audit.cluster_audit import Audit
from webhook.audit.kinds import GroupKind
from webhook.kube.client import KubeApi
from webhook.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from webhook.kube.listing import list_all

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


_MOST_BYTES = 128 * 1024
"""No audit writes a larger report: the findings of an object have a limit."""


class _Api(NamedTuple):
    """An API with reports: its version, and kind and resource for each scope."""

    version: str
    namespaced: tuple[str, str]
    clustered: tuple[str, str]


_APIS = (
    _Api("openreports.io/v1alpha1", ("Report", "reports"), ("ClusterReport", "clusterreports")),
    _Api(
        "wgpolicyk8s.io/v1alpha2",
        ("PolicyReport", "policyreports"),
        ("ClusterPolicyReport", "clusterpolicyreports"),
    ),
)


class _Subject(NamedTuple):
    """The object of a report, and its findings."""

    reference: JSONObject
    findings: tuple[Finding, ...]


class Published(NamedTuple):
    """The result of writing reports: a ``summary``, and ``conflicts``.

    A conflict is a report that was not written, or a namespace in which no report may be written.
    """

    summary: str
    conflicts: tuple[str, ...] = ()


async def publish(api: KubeApi, audit: Audit, now: datetime) -> Published:
    """Write the findings of the audit to the cluster.

    Each object with findings has one report, which it owns. Reports and results that no longer
    apply are deleted, if the audit has seen their objects. Unchanged reports are not written, and
    no reports are written in a namespace that is being deleted.

    Raises:
        ClusterError: reports cannot be listed, or the cluster cannot be read.
    """
    reports = await _served(api)
    if reports is None:
        kinds = " nor ".join(api.version for api in _APIS)
        return Published(f"No PolicyReports written: the cluster has neither {kinds}.")
    unread = {subject.owned.uid for subject in audit.subjects if subject.error}
    counts: Counter[str] = Counter()
    conflicts = []
    closed: dict[str, str] = {}
    for (kind, resource), subjects in (
        (reports.namespaced, _workloads(audit)),
        (reports.clustered, _nodes(audit)),
    ):
        path = f"/apis/{reports.version}"
        listed = await list_all(
            api, f"{path}/{resource}", msgspec.Raw, _stored, labels=f"{_LABEL}={_MANAGER}"
        )
        present = dict(filter(None, listed))
        for subject in subjects:
            desired = _report(reports.version, kind, subject, now)
            text = present.pop(desired["metadata"]["name"], b"")
            own = msgspec.json.decode(text) if text else None
            if own is not None and not _is_settled(desired, audit.settled):
                desired = _with_kept(desired, own)
            if _place(desired) in closed:
                counts["rejected"] += 1
                continue
            try:
                counts[await _write(api, path, resource, desired, own)] += 1
            except ApiError as error:
                if error.status == CONFLICT:
                    conflicts.append(_conflict(desired, own))
                elif _is_deleting(error):
                    counts["deleting"] += 1
                elif error.status == FORBIDDEN:
                    # The next one would fail as well: RBAC or a quota forbids it.
                    closed[_place(desired)] = str(error)
                    counts["rejected"] += 1
                elif error.status in _UNACCEPTABLE:
                    conflicts.append(f"{_named(desired)} was rejected: {error}")
                    counts["rejected"] += 1
                else:
                    raise
        for stale in map(msgspec.json.decode, present.values()):
            if not _is_over(stale, audit.settled, unread):
                counts["kept"] += 1
                continue
            try:
                await api.delete(_path(path, resource, stale))
                counts["deleted"] += 1
            except ApiError as error:
                if error.status != FORBIDDEN:
                    raise
                closed[_place(stale)] = str(error)
                counts["rejected"] += 1
    conflicts += (
        f"In {place}, the API server rejects reports: {why}" for place, why in closed.items()
    )
    return Published(_sentence(reports.version, counts), tuple(conflicts))


_COUNTED = ("created", "changed", "unchanged", "deleted")
_SPECIAL = {
    "deleting": "not written, because their objects are being deleted",
    "rejected": "rejected",
    "kept": "kept, because their objects were not audited",
}
_UNACCEPTABLE = (400, 413, 422)
"""The report does not match its definition, or is too large for the API server or etcd."""


def _sentence(version: str, counts: Counter[str]) -> str:
    parts = [", ".join(f"{counts[what]} {what}" for what in _COUNTED)]
    parts += [f"{counts[what]} {meaning}" for what, meaning in _SPECIAL.items() if counts[what]]
    return f"Reports of {version}: {'; '.join(parts)}."


async def _served(api: KubeApi) -> _Api | None:
    for report_api in _APIS:
        if await api.read(f"/apis/{report_api.version}") is not None:
            return report_api
    return None


def _workloads(audit: Audit) -> Iterator[_Subject]:
    for subject in audit.subjects:
        if subject.decision.findings:
            owned = subject.owned
            reference = {
                "apiVersion": subject.kind.api_version,
                "kind": subject.kind.kind,
                "namespace": owned.namespace,
                "name": owned.name,
                "uid": owned.uid,
            }
            yield _Subject(reference, subject.decision.findings)


def _nodes(audit: Audit) -> Iterator[_Subject]:
    for node in audit.nodes:
        reference = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        yield _Subject(reference, node.findings)


def _is_over(report: JSONObject, settled: Container[GroupKind], unread: Container[str]) -> bool:
    """Return whether the audit has seen that an object has no findings any more.

    It has not if its kind was not listed completely, or if the object is malformed.
    """
    uid = (report.get("scope") or {}).get("uid")
    return _is_settled(report, settled) and uid not in unread


def _is_settled(report: JSONObject, settled: Container[GroupKind]) -> bool:
    """Return whether all objects of the report's kind were listed."""
    scope = report.get("scope") or {}
    group, _, _ = scope.get("apiVersion", "").rpartition("/")
    return (group, scope.get("kind", "")) in settled


def _with_kept(desired: JSONObject, own: JSONObject) -> JSONObject:
    """Return the report with the results of the last one that are missing this time.

    They may depend on objects that could not be listed.
    """
    current = [_timeless(result) for result in desired["results"]]
    kept = [result for result in own.get("results") or () if _timeless(result) not in current]
    results = [*desired["results"], *kept]
    return {**desired, "results": results, "summary": _summary(results)}


def _summary(results: Iterable[JSONObject]) -> JSONObject:
    counts = Counter(result.get("result") for result in results)
    return {result: counts[result] for result in ("pass", "fail", "warn", "error", "skip")}


def _report(version: str, kind: str, subject: _Subject, now: datetime) -> JSONObject:
    reference = subject.reference
    owner = {key: reference[key] for key in ("apiVersion", "kind", "name", "uid")}
    metadata: JSONObject = {
        "name": f"{SOURCE}-{reference['uid']}",
        "labels": {_LABEL: _MANAGER},
        "ownerReferences": [owner],
    }
    if "namespace" in reference:
        metadata["namespace"] = reference["namespace"]
    results = [_result(finding, now) for finding in subject.findings]
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "scope": reference,
        "summary": _summary(results),
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


async def _write(
    api: KubeApi, path: str, resource: str, desired: JSONObject, live: JSONObject | None
) -> str:
    """Write a report unless it is unchanged, and return what was done."""
    if live is None:
        collection = _path(path, resource, desired).rpartition("/")[0]
        await api.create(collection, desired)
        return "created"
    if _content(live) == _content(desired):
        return "unchanged"
    metadata = {**desired["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
    await api.replace(_path(path, resource, desired), {**desired, "metadata": metadata})
    return "changed"


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


def _conflict(desired: JSONObject, own: JSONObject | None) -> str:
    """Return why a report was not written; ``own`` says whether gpufence wrote the existing one."""
    which = _named(desired)
    if own is not None:
        return (
            f"{which} was changed by another client at the same time, so gpufence did not write "
            "it. Run the audit again."
        )
    return (
        f"{which} lacks the label {_LABEL}={_MANAGER}, so gpufence did not write it. Delete it or "
        "add the label, and run the audit again."
    )


def _named(report: JSONObject) -> str:
    metadata, scope = report["metadata"], report["scope"]
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return f"{report['kind']} {name}, about {scope['kind']} {scope['name']},"


def _place(report: JSONObject) -> str:
    """Return the scope in which a report is written."""
    namespace = report["metadata"].get("namespace")
    return f"namespace {namespace}" if namespace else "the cluster scope"


def _is_deleting(error: ApiError) -> bool:
    """Return whether a report failed because its object or its namespace is being deleted.

    Source: ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``, which answers 403.
    """
    return error.status == NOT_FOUND or "because it is being terminated" in str(error)


def _content(report: JSONObject) -> Any:
    """Return the content of a report without timestamps."""
    return report.get("scope"), [_timeless(result) for result in report.get("results") or ()]


def _timeless(result: JSONObject) -> list[tuple[str, Any]]:
    return sorted((key, value) for key, value in result.items() if key != "timestamp")


def _path(path: str, resource: str, report: JSONObject) -> str:
    namespace = report["metadata"].get("namespace")
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"{path}/{where}{resource}/{report['metadata']['name']}"

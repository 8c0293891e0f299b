"""Findings as objects of the cluster: PolicyReports, which dashboards of the field read.

Sources: ``wgpolicyk8s.io/v1alpha2`` (Kubernetes' policy working group) and its successor,
``openreports.io/v1alpha1``. The first of the two that the cluster has is written, the newer first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from policies.finding import Action, Finding
from policies.kubernetes.objects import JSONObject
from webhook.audit.cluster_audit import Audit
from webhook.audit.kinds import GroupKind
from webhook.kube.client import CONFLICT, FORBIDDEN, KubeApi
from webhook.kube.errors import NOT_FOUND, ApiError
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


class _Api(NamedTuple):
    """An API that has reports: its version, and the kinds and resources for either scope."""

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
    """What a report is about, and what was found of it."""

    reference: JSONObject
    findings: tuple[Finding, ...]


class Published(NamedTuple):
    """What became of the reports: a sentence about all, and ``conflicts``.

    These are one for each report that was not written, for what is there by its name or for what it
    holds, and one for each namespace in which none may be written.
    """

    said: str
    conflicts: tuple[str, ...] = ()


async def publish(api: KubeApi, audit: Audit, now: datetime) -> Published:
    """Make the cluster's reports say what the audit found.

    One report for each object with findings, owned by it, so that it goes with it. What is no
    longer true is deleted, a report or a result in one, where the audit has seen that. What has not
    changed is not written, nor what is about to go with its namespace.

    Raises:
        ClusterError: reports may not be listed, or the cluster cannot be read.
    """
    reports = await _served(api)
    if reports is None:
        kinds = " and ".join(each.version for each in _APIS)
        return Published(f"No PolicyReports written: the cluster has neither of {kinds}.")
    unread = {subject.workload.owned.uid for subject in audit.subjects if subject.error}
    counts: Counter[str] = Counter()
    conflicts = []
    closed: dict[str, str] = {}
    for (kind, resource), subjects in (
        (reports.namespaced, _workloads(audit)),
        (reports.clustered, _nodes(audit)),
    ):
        path = f"/apis/{reports.version}"
        found = await list_all(
            api, f"{path}/{resource}", lambda obj: obj, labels=f"{_LABEL}={_MANAGER}"
        )
        present = {each["metadata"]["name"]: each for each in found if _is_own(each)}
        for subject in subjects:
            wanted = _report(reports.version, kind, subject, now)
            own = present.pop(wanted["metadata"]["name"], None)
            if own is not None and not _is_settled(wanted, audit.settled):
                wanted = _with_kept(wanted, own)
            if _place(wanted) in closed:
                counts["refused"] += 1
                continue
            try:
                counts[await _write(api, path, resource, wanted, own)] += 1
            except ApiError as error:
                if error.status == CONFLICT:
                    conflicts.append(_conflict(wanted, own))
                elif _is_going(error):
                    counts["going"] += 1
                elif error.status == FORBIDDEN:
                    # As it will be for the next one: by the rights of the account, or a quota.
                    closed[_place(wanted)] = str(error)
                    counts["refused"] += 1
                elif error.status in _UNACCEPTABLE:
                    conflicts.append(f"{_named(wanted)} was refused: {error}")
                    counts["refused"] += 1
                else:
                    raise
        for stale in present.values():
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
                counts["refused"] += 1
    conflicts += (f"In {place}, reports were refused: {why}" for place, why in closed.items())
    return Published(_sentence(reports.version, counts), tuple(conflicts))


_COUNTED = ("created", "changed", "unchanged", "deleted")
_UNACCEPTABLE = (400, 413, 422)
"""That a report does not meet its definition, or is larger than the API server or etcd accepts."""


def _sentence(version: str, counts: Counter[str]) -> str:
    said = ", ".join(f"{counts[what]} {what}" for what in _COUNTED)
    going = f"; {counts['going']} not written, whose objects are going" if counts["going"] else ""
    refused = f"; {counts['refused']} refused" if counts["refused"] else ""
    kept = f"; {counts['kept']} kept, whose objects could not be judged" if counts["kept"] else ""
    return f"Reports of {version}: {said}{going}{refused}{kept}."


async def _served(api: KubeApi) -> _Api | None:
    for each in _APIS:
        try:
            if await api.read(f"/apis/{each.version}") is not None:
                return each
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
    return None


def _workloads(audit: Audit) -> Iterator[_Subject]:
    for subject in audit.subjects:
        if subject.decision.findings:
            owned = subject.workload.owned
            reference = {
                "apiVersion": subject.workload.kind.api_version,
                "kind": subject.workload.kind.kind,
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
    """Tell whether the audit has seen that there is nothing to report of an object any more.

    It has not where the kind is not settled, or the object, by its uid, is one that no rule can
    read.
    """
    uid = (report.get("scope") or {}).get("uid")
    return _is_settled(report, settled) and uid not in unread


def _is_settled(report: JSONObject, settled: Container[GroupKind]) -> bool:
    """Tell whether all was seen of the kind that a report is about."""
    scope = report.get("scope") or {}
    group, _, _ = scope.get("apiVersion", "").rpartition("/")
    return (group, scope.get("kind", "")) in settled


def _with_kept(wanted: JSONObject, own: JSONObject) -> JSONObject:
    """Return the report with the results of the last one that were not found this time.

    What led to them may be what could not be listed.
    """
    found = [_timeless(result) for result in wanted["results"]]
    kept = [result for result in own.get("results") or () if _timeless(result) not in found]
    results = [*wanted["results"], *kept]
    return {**wanted, "results": results, "summary": _summary(results)}


def _summary(results: Iterable[JSONObject]) -> JSONObject:
    counts = Counter(result.get("result") for result in results)
    return {each: counts[each] for each in ("pass", "fail", "warn", "error", "skip")}


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
    api: KubeApi, path: str, resource: str, wanted: JSONObject, found: JSONObject | None
) -> str:
    """Write a report unless it is there already, and return what was done."""
    if found is None:
        collection = _path(path, resource, wanted).rpartition("/")[0]
        await api.create(collection, wanted)
        return "created"
    if _said(found) == _said(wanted):
        return "unchanged"
    metadata = {**wanted["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
    await api.replace(_path(path, resource, wanted), {**wanted, "metadata": metadata})
    return "changed"


def _is_own(report: JSONObject) -> bool:
    """Return whether an audit wrote it; not every API server applies the label selector."""
    return (report["metadata"].get("labels") or {}).get(_LABEL) == _MANAGER


def _conflict(wanted: JSONObject, own: JSONObject | None) -> str:
    """Return why a report was not written; ``own`` says whether gpufence wrote the existing one."""
    which = _named(wanted)
    if own is not None:
        return (
            f"{which} was changed by somebody else meanwhile, so it was left as it is. Audit again."
        )
    return (
        f"{which} is not the audit's, so it was left as it is: it lacks the label "
        f"{_LABEL}={_MANAGER}. Delete it, or give it that label, and audit again."
    )


def _named(report: JSONObject) -> str:
    metadata, scope = report["metadata"], report["scope"]
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return f"{report['kind']} {name}, about {scope['kind']} {scope['name']},"


def _place(report: JSONObject) -> str:
    """Return where a report is written, in the terms of RBAC and quotas."""
    namespace = report["metadata"].get("namespace")
    return f"namespace {namespace}" if namespace else "the cluster itself"


def _is_going(error: ApiError) -> bool:
    """Return whether a report failed because its object or its namespace is being deleted.

    Source: ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``, which answers 403.
    """
    return error.status == NOT_FOUND or "because it is being terminated" in str(error)


def _said(report: JSONObject) -> Any:
    """Return what a report says, but for when."""
    return report.get("scope"), [_timeless(each) for each in report.get("results") or ()]


def _timeless(result: JSONObject) -> list[tuple[str, Any]]:
    return sorted((key, value) for key, value in result.items() if key != "timestamp")


def _path(path: str, resource: str, report: JSONObject) -> str:
    namespace = report["metadata"].get("namespace")
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"{path}/{where}{resource}/{report['metadata']['name']}"

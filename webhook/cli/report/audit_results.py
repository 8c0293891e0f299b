"""An audit as results and sentences, for every format of its report."""

from __future__ import annotations

from collections.abc import Iterator

from policies.decision import Decision
from policies.kubernetes.objects import JSONObject
from webhook.audit.cluster_audit import Audit
from webhook.audit.names import some
from webhook.audit.nodes import NodeFindings
from webhook.audit.pools import PoolState
from webhook.audit.subjects import Subject
from webhook.cli.manifests.evaluate import Result
from webhook.documents.documents import Document
from webhook.documents.errors import ManifestError
from webhook.documents.objects import Manifest
from webhook.wording import counted


def results_of(audit: Audit) -> Iterator[Result]:
    """Yield a result for each topmost owner, and for each node that has findings.

    An object in a cluster has no file: its place is its name for kubectl, below its namespace.
    """
    for node in audit.nodes:
        yield _of_node(node)
    for subject in audit.subjects:
        yield _of_subject(subject)


def place_of(subject: Subject) -> str:
    """Return the place of an object: ``ml/jobs.batch/train``."""
    owned = subject.workload.owned
    return f"{owned.namespace}/{subject.workload.kind.title}/{owned.name}"


def remarks(audit: Audit) -> Iterator[str]:
    """Yield sentences about Pods without mutations, useless exceptions, and separate objects."""
    if pods := audit.unmutated:
        yield (
            f"{counted(len(pods), 'running Pod')} without the mutations of the policy: "
            f"{some(pods)}. The webhook did not run when they were created. Create them again"
        )
    yield from audit.exceptions
    for subject in audit.subjects:
        if subject.remark:
            yield f"{place_of(subject)} counts by itself: {subject.remark}"


def pool_summary(state: PoolState) -> str:
    """Return the numbers of a pool as one clause."""
    return (
        f"{counted(len(state.nodes), 'node')}, {counted(state.allocatable, 'device')}: "
        f"{state.requested:,} requested, {state.waiting:,} of them by waiting Pods; "
        f"{state.free:,} free"
    )


def _of_subject(subject: Subject) -> Result:
    workload, decision = subject.workload, subject.decision
    manifest = _manifest(place_of(subject), workload.obj)
    if subject.error:
        error = ManifestError(subject.error)
        return Result(manifest, "invalid", namespace=workload.owned.namespace, error=error)
    return Result(manifest, decision.verdict, decision, workload.owned.namespace)


def _of_node(node: NodeFindings) -> Result:
    obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
    manifest = _manifest(f"nodes/{node.name}", obj)
    return Result(manifest, "allowed", Decision(obj, findings=node.findings))


def _manifest(path: str, obj: JSONObject) -> Manifest:
    return Manifest(Document(path, 0, 0, "", 0), None, (), 0, obj)

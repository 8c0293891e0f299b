"""What an audit found as the results that every report is made of."""

from __future__ import annotations

from collections.abc import Iterator

from policies.engine import Decision
from policies.facts import JSONObject
from webhook.audit.cluster_audit import Audit
from webhook.audit.nodes import NodeFindings
from webhook.audit.subjects import Subject
from webhook.cli.manifests.documents import Document
from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.evaluate import Result
from webhook.cli.manifests.objects import Manifest


def results_of(audit: Audit) -> Iterator[Result]:
    """Yield a result for each topmost owner, and for each node with which something is wrong.

    An object has no file: its place is what kubectl calls it, below its namespace.
    """
    for node in audit.nodes:
        yield _of_node(node)
    for subject in audit.subjects:
        yield _of_subject(subject)


def place_of(subject: Subject) -> str:
    """Return what stands for an object's place: ``ml/jobs.batch/train``."""
    owned = subject.workload.owned
    return f"{owned.namespace}/{subject.workload.kind.title}/{owned.name}"


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
    return Result(manifest, "allowed", Decision(obj, obj, findings=node.findings))


def _manifest(path: str, obj: JSONObject) -> Manifest:
    return Manifest(Document(path, 0, 0, "", 0), None, (), 0, obj)

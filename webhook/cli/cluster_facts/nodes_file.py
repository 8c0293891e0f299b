"""``--nodes FILE``: the nodes of a cluster, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.cli.manifests.evaluate import read_manifests
from webhook.cluster.nodes import node_of
from webhook.cluster.templates import template_of
from webhook.documents.documents import sentence
from webhook.documents.errors import InputError, ManifestError
from webhook.documents.files import display_name
from webhook.wording import printable


class NodesFile(NamedTuple):
    """The nodes and the node templates in a file."""

    nodes: NodeIndex
    templates: tuple[NodeTemplate, ...]


def read_nodes(path: str, policy: Policy) -> NodesFile:
    """Return the nodes in a file, with the policy's devices, and node templates.

    Other kinds are ignored.

    Raises:
        InputError: the file cannot be read, is partly invalid, or holds no nodes.
    """
    index, templates = NodeIndex(), list[NodeTemplate]()

    def take(obj: JSONObject) -> None:
        if (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Node"):
            index.update(node_of(obj, policy))
        elif template := template_of(obj):
            templates.append(template)

    read_objects(path, take)
    if not index:
        raise no_nodes(path)
    return NodesFile(index, tuple(templates))


def read_objects(path: str, take: Callable[[JSONObject], None]) -> None:
    """Call ``take`` with each object in a file; it raises ValueError for an invalid one.

    Raises:
        InputError: the file cannot be read, or is partly invalid.
    """
    problems = []
    for manifest in read_manifests([path]):
        error, obj = manifest.error, manifest.value or {}
        if error is None:
            try:
                take(obj)
            except ValueError as problem:
                kind = obj.get("kind")
                error = ManifestError(f"is not a valid {kind}: {problem}", line=manifest.line)
        if error is not None:
            problems.append(printable(sentence(manifest.document, error)))
    if problems:
        raise InputError(problems)


def no_nodes(path: str) -> InputError:
    """Return the error of a file without nodes."""
    return InputError(
        [f"{display_name(path)} contains no nodes. Create it with kubectl get nodes -o json."]
    )

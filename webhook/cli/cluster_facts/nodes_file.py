"""``--nodes FILE``: the nodes of a cluster, as kubectl prints them."""

from __future__ import annotations

from typing import NamedTuple

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy
from webhook.cli.errors import InputError
from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.evaluate import read_manifests
from webhook.cli.manifests.files import display_name
from webhook.cli.manifests.sentence import sentence
from webhook.cli.wording import printable
from webhook.cluster.nodes import node_of
from webhook.cluster.templates import template_of


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
    index, templates, problems = NodeIndex(), list[NodeTemplate](), list[str]()
    for manifest in read_manifests([path]):
        error, value = manifest.error, manifest.value or {}
        if error is None:
            try:
                if (value.get("apiVersion"), value.get("kind")) == ("v1", "Node"):
                    index.update(node_of(value, policy))
                elif template := template_of(value):
                    templates.append(template)
            except ValueError as problem:
                kind = value.get("kind")
                error = ManifestError(f"is not a valid {kind}: {problem}", line=manifest.line)
        if error is not None:
            problems.append(printable(sentence(manifest.document, error)))
    if problems:
        raise InputError(problems)
    if not index:
        raise InputError(
            [f"{display_name(path)} contains no nodes. Create it with kubectl get nodes -o json."]
        )
    return NodesFile(index, tuple(templates))

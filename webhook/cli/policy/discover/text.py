"""A discovered policy as YAML, with comments for the administrator who completes it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from policies.finding import Mode
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import Taint
from webhook.cli.policy.discover.accelerators import INSTANCE_TYPE, KNOWN
from webhook.cli.policy.discover.drafts import Draft, PoolDraft
from webhook.cli.yaml_writer import to_yaml
from webhook.documents.document import InputError
from webhook.wording import counted, printable, some

_WIDTH = 98
_ALWAYS_EXEMPT = ("kube-system", "gpufence-system", "node-feature-discovery")
_OPENSHIFT = "node.openshift.io/"
_QUOTA = ".deviceclass.resource.k8s.io/devices"
"""What follows the name of a DeviceClass in the resource that a ResourceQuota limits."""


def policy_text(
    draft: Draft,
    nodes: Sequence[Node],
    templates: int,
    namespaces: frozenset[str] | None,
    mode: Mode = "enforce",
) -> str:
    """Return the policy as YAML, with comments.

    ``namespaces`` are those of the cluster; ``None`` if they are unknown.

    Raises:
        InputError: the draft has no pool.
    """
    if not draft.pools:
        problem = "no node offers devices of a known vendor"
        cure = "Install the device plugin, or start from gpufence policy show"
        raise InputError([f"{problem}. {cure}."])
    lines = _lines(draft, nodes, templates, namespaces, mode)
    return "".join(f"{line}\n" for line in lines)


def _lines(
    draft: Draft,
    nodes: Sequence[Node],
    templates: int,
    namespaces: frozenset[str] | None,
    mode: Mode,
) -> Iterator[str]:
    source = counted(len(nodes), "node")
    if templates:
        source += f" and {counted(templates, 'node template')}"
    yield from _comment(
        f"A policy for {source}, by gpufence policy discover. Every namespace may use every pool. "
        "To reserve a pool, set its allowedNamespaces. Rules that are not listed have their "
        "default action (gpufence policy show)."
    )
    if draft.findings:
        yield "#"
        yield "# Findings:"
        for finding in draft.findings:
            yield from _comment(f"{finding}.", "# - ", "#   ")
    yield "apiVersion: gpufence.dev/v1alpha1"
    yield "kind: FencePolicy"
    yield ""
    if mode != "enforce":
        yield "# Records what enforce would do, and changes nothing."
        yield f"mode: {mode}"
        yield ""
    yield "pools:"
    pools_of = Counter(name for pool in draft.pools for name in pool.device_classes)
    for pool in draft.pools:
        yield from _pool(pool, [name for name in pool.device_classes if pools_of[name] == 1])
    keys = {key for node in nodes for key in node.labels}
    if any(key.startswith(_OPENSHIFT) for key in keys):
        yield ""
        yield from _comment("OpenShift assigns user IDs by namespace, and rejects others.")
        yield from _yaml({"hardening": {"runAsUser": None}})
    yield ""
    advice = " Remove those that the cluster does not have." if namespaces is None else ""
    yield from _comment(
        f"The namespaces of the platform, to which the policy does not apply.{advice}"
    )
    exempt = _exempt(draft, keys)
    if namespaces is not None:
        exempt = [name for name in exempt if name in {*namespaces, *_ALWAYS_EXEMPT[:2]}]
    yield from _yaml({"exemptions": {"namespaces": exempt}})


def _pool(pool: PoolDraft, own_classes: Iterable[str]) -> Iterator[str]:
    comments = []
    if pool.nodes:
        comments.append(f"{counted(len(pool.nodes), 'node')}: {some(pool.nodes)}")
    if pool.templates:
        comments.append(f"node templates: {some(pool.templates)}")
    yield from _comment("; ".join(comments), "  # ")
    types = pool.instance_types
    if len(types) > 1 and not any(key in pool.vendor.products for key in pool.selector):
        yield from _comment(
            f"Instance types: {', '.join(types)}. For a pool of each, select by {INSTANCE_TYPE}.",
            "  # ",
        )
    for name in own_classes:
        yield from _comment(
            f"To limit the claims of a namespace, set {name}{_QUOTA} in spec.hard of a "
            "ResourceQuota.",
            "  # ",
        )
    body: dict[str, object] = {"name": pool.name, "resources": pool.resources}
    if shared := pool.shared_resources:
        body["sharedResources"] = shared
    if pool.device_classes:
        body["deviceClasses"] = pool.device_classes
    body["taints"] = list(map(_taint, pool.taints))
    one = {key: values[0] for key, values in pool.selector.items() if len(values) == 1}
    several = {key: list(values) for key, values in pool.selector.items() if len(values) > 1}
    if one:
        body["nodeSelector"] = one
    if several:
        body["matchExpressions"] = [
            {"key": key, "operator": "In", "values": values} for key, values in several.items()
        ]
    first, *others = _yaml([body])
    yield f"  {first}"
    yield from (f"  {line}" for line in others)


def _taint(taint: Taint) -> dict[str, str]:
    value = {} if taint.value is None else {"value": taint.value}
    return {"key": taint.key, **value, "effect": taint.effect}


def _exempt(draft: Draft, keys: Iterable[str]) -> list[str]:
    names = [*_ALWAYS_EXEMPT]
    for vendor in dict.fromkeys(pool.vendor for pool in draft.pools):
        names += vendor.namespaces
    for prefix, namespaces in KNOWN.platform_namespaces.items():
        if any(key.startswith(prefix) for key in keys):
            names += namespaces
    return names


def _yaml(value: object) -> list[str]:
    return to_yaml(value).splitlines()


def _comment(text: str, first: str = "# ", later: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later or first,
        break_long_words=False,
        break_on_hyphens=False,
    )

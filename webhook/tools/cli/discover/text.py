"""A discovered policy as YAML, with comments.

The text is in ``policy.yaml.jinja``.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from policies.finding import Mode
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import is_extended_resource_name
from policies.wording import listing
from webhook.documents.document import InputError
from webhook.tools.cli.discover.accelerators import INSTANCE_TYPE, KNOWN
from webhook.tools.cli.discover.drafts import Draft
from webhook.tools.cli.yaml_writer import to_yaml
from webhook.wording import counted, printable, some

if TYPE_CHECKING:
    from jinja2 import Template

_WIDTH = 98
_OWN = ("kube-system", "gpufence-system")
_ALWAYS_EXEMPT = (*_OWN, "node-feature-discovery")


def policy_text(
    draft: Draft,
    namespaces: frozenset[str] | None,
    mode: Mode = "enforce",
    overrides: Sequence[JSONObject] = (),
    platforms: Iterable[str] = (),
    exceptions: Sequence[JSONObject] = (),
) -> str:
    """Return the policy as YAML, with comments.

    ``namespaces`` are those of the cluster; ``None`` if they are unknown. ``overrides`` are
    what its workloads need, ``platforms`` the namespaces whose Pods are bound to nodes, and
    ``exceptions`` are for its agents of nodes.

    Raises:
        InputError: the draft has no pool.
    """
    if not draft.pools:
        raise InputError([f"no node offers devices of a known vendor. {_without_pools(draft)}."])
    pools_of = Counter(name for pool in draft.pools for name in pool.device_classes)
    keys = {key for node in draft.nodes for key in node.labels}
    exempt = _exempt(draft, keys)
    if namespaces is not None:
        exempt = [name for name in exempt if name in {*namespaces, *_OWN}]
    exempt += [name for name in platforms if name not in exempt]
    return _template().render(
        draft=draft,
        nodes=draft.nodes,
        templates=len(draft.templates),
        mode=mode,
        by_model=len({pool.models for pool in draft.pools if pool.models}) > 1,
        instance_type=INSTANCE_TYPE,
        own_classes=lambda pool: [
            f"{name}.deviceclass.resource.k8s.io/devices"
            for name in pool.device_classes
            if pools_of[name] == 1
        ],
        is_openshift=any(key.startswith("node.openshift.io/") for key in keys),
        knows_namespaces=namespaces is not None,
        quarantine=[{"key": taint.key, "effect": taint.effect} for taint in draft.quarantine],
        exempt=exempt,
        overrides=overrides,
        exceptions=exceptions,
    )


def _without_pools(draft: Draft) -> str:
    """Return what to do where no node offers devices of a known vendor."""
    others: dict[str, list[str]] = {}
    for node in draft.nodes:
        for name, count in node.offers.items():
            if count and is_extended_resource_name(name):
                others.setdefault(name, []).append(node.name)
    if not others:
        return (
            "Install the device plugin or the DRA driver, check that its DaemonSets tolerate the "
            "taints of the nodes, or start from gpufence policy show"
        )
    offered = listing(f"{name} ({some(sorted(nodes))})" for name, nodes in sorted(others.items()))
    return (
        f"They offer {offered}. If these are accelerators, write a pool with them in resources, "
        "and start from gpufence policy show"
    )


@cache
def _template() -> Template:
    # It takes longer to import than other gpufence policy commands take.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - the text is no markup
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"comment": _comment, "counted": counted, "listing": listing}
    environment.filters |= {"some": some, "yaml": _yaml}
    return environment.get_template("policy.yaml.jinja")


def _exempt(draft: Draft, keys: Iterable[str]) -> list[str]:
    names = [*_ALWAYS_EXEMPT]
    members = (member for pool in draft.pools for member in pool.members)
    for vendor in dict.fromkeys(vendor for member in members for vendor in member.vendors):
        names += (name for name in vendor.namespaces if name not in names)
    for prefix, namespaces in KNOWN.platform_namespaces.items():
        if any(key.startswith(prefix) for key in keys):
            names += namespaces
    return names


def _yaml(value: object) -> str:
    return to_yaml(value).removesuffix("\n")


def _comment(text: str, first: str = "# ", later: str = "") -> str:
    """Return a paragraph as lines of a comment, each with its line end."""
    lines = textwrap.wrap(
        printable(text.strip().replace("\n", " ")),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later or first,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)

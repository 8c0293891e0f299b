"""Pieces of CEL (Common Expression Language) that the in-tree rules and match conditions share.

Every function returns the text of an expression. ``spec`` is the CEL of a Pod spec and ``c`` the
CEL of a container. The API leaves empty fields out, so each optional field is read with ``.?`` and
a default. Everything used here is part of Kubernetes 1.30.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from policies.kubernetes.names import NameSet
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Policy
from policies.reach import DAEMON_SET_CONTROLLER
from policies.requests import IMPLICIT_RESOURCE_PREFIX

Variable = tuple[str, str]
"""The name and the expression of a variable that later expressions can use."""

AFFINITY = f"?affinity.?nodeAffinity.?{REQUIRED}"


def text(value: str) -> str:
    """Return a string literal."""
    return json.dumps(value)


def names(values: Iterable[str]) -> str:
    """Return a list literal."""
    return json.dumps(sorted(values))


def any_of(*expressions: str) -> str:
    """Return the disjunction; without any expression, false."""
    return "(" + " || ".join(f"({part})" for part in expressions) + ")" if expressions else "false"


def all_of(*expressions: str) -> str:
    """Return the conjunction; without any expression, true."""
    return "(" + " && ".join(f"({part})" for part in expressions) + ")" if expressions else "true"


def is_in(name: str, known: NameSet) -> str:
    """Return CEL that holds for the CEL string ``name`` if it is one of the set."""
    exact = [f"{name} in {names(known.exact)}"] if known.exact else []
    prefixes = [f"{name}.startsWith({text(prefix)})" for prefix in sorted(known.prefixes)]
    return any_of(*exact, *prefixes)


def listed(owner: str, field: str) -> str:
    """Return CEL for a list field that the API leaves out if it is empty."""
    return f"{owner}.?{field}.orValue([])"


def mapped(owner: str, field: str) -> str:
    """Return CEL for a map field that the API leaves out if it is empty."""
    return f"{owner}.?{field}.orValue({{}})"


def containers(spec: str) -> str:
    """Return CEL for the containers and init containers of a Pod spec."""
    return f"({spec}.containers + {listed(spec, 'initContainers')})"


def requests_resource(c: str, is_named: str) -> str:
    """Return CEL that holds for a container that reserves at least one of a resource.

    ``is_named`` is CEL that holds for the resource's name, ``k``. The scheduler counts requests; a
    template may have limits alone, which the API server copies to the Pod's requests. The API has
    one spelling for a quantity of zero.
    """
    requests, limits = mapped(c, "resources.?requests"), mapped(c, "resources.?limits")
    return any_of(
        f'{requests}.exists(k, {is_named} && string({requests}[k]) != "0")',
        f'{limits}.exists(k, {is_named} && !(k in {requests}) && string({limits}[k]) != "0")',
    )


def may_be_device(policy: Policy) -> str:
    """Return CEL that holds for a resource name ``k`` that may stand for a device of a pool.

    A DeviceClass may serve any extended resource, and only the cluster says which.
    """
    if not policy.pools_of_class:
        return any_of(*(is_in("k", pool.resources) for pool in policy.pools))
    prefix = text(IMPLICIT_RESOURCE_PREFIX)
    implicit = names(f"{IMPLICIT_RESOURCE_PREFIX}{name}" for name in policy.pools_of_class)
    return f'k.contains("/") && (!k.startsWith({prefix}) || k in {implicit})'


def may_request_device(spec: str, path: str, policy: Policy) -> str:
    """Return CEL that holds for a Pod spec that requests a device of a pool, or may do so.

    ``path`` is where the Pod's ``spec`` stands in the object.
    """
    by_resource = f"c, {requests_resource('c', may_be_device(policy))}"
    claims = [f"has({spec}.resourceClaims)"] if policy.pools_of_class else []
    annotated = may_request_by_annotation(spec, path, policy)
    return any_of(*claims, f"{containers(spec)}.exists({by_resource})", *annotated)


def may_request_by_annotation(spec: str, path: str, policy: Policy) -> tuple[str, ...]:
    """Return CEL that holds for a Pod spec whose scheduler may read a request from an annotation.

    ``path`` is where the Pod's ``spec`` stands in the object. The annotations are those of the new
    object. Their values are left to the engine.
    """
    annotations = mapped("object", f"{path.removesuffix('spec')}metadata.?annotations")
    return tuple(
        all_of(
            f'{spec}.?schedulerName.orValue("") == {text(annotation.scheduler_name)}',
            f"{annotations}.exists(k, k in {names(annotation.annotations)})",
        )
        for annotation in policy.pools_of_annotations
    )


def is_daemon_set(kinds: frozenset[str]) -> Iterator[str]:
    """Yield CEL that holds for a DaemonSet, or for a Pod that its controller creates."""
    if "DaemonSet" in kinds:
        yield 'request.kind.kind == "DaemonSet"'
    if "Pod" in kinds:
        owners = listed("object.metadata", "ownerReferences")
        yield (
            f"request.userInfo.username == {text(DAEMON_SET_CONTROLLER)} && "
            f'{owners}.exists(o, o.?controller.orValue(false) && o.kind == "DaemonSet")'
        )


def required_terms(spec: str) -> str:
    """Return CEL for the required node selector terms of a Pod spec."""
    return f"{spec}.{AFFINITY}.?nodeSelectorTerms.orValue([])"


def has_required_terms(spec: str) -> str:
    """Return CEL that holds for a Pod spec with a required node affinity."""
    return f"{spec}.{AFFINITY}.hasValue()"

"""The vocabulary of both lines: CEL about ``pod``, a Pod or the pod template of another object.

Each function returns an expression. It must not fail for any object that the API server accepts:
a failure rejects the request. The API leaves empty fields out, so each optional field is guarded by
``has`` or read with ``.?`` and a default; ``containers``, an ``env``'s ``name`` and an expression's
``key`` are always there (``k8s.io/api/core/v1``, the ``omitempty`` of each field). Everything used
here is part of Kubernetes 1.30.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.kubernetes.field_types import NameSet
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Actions, Policy, Pool
from policies.reach import DAEMON_SET_CONTROLLER
from policies.requests import IMPLICIT_RESOURCE_PREFIX
from webhook.controller.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    is_in,
    let,
    names,
    text,
)

LIMIT = 1000
"""Longer lists are not searched.

``exists`` takes the API server time with the square of the length, before any cost limit: 26 s for
110,000 entries. As many in lists of this length take it 0.2 s. The longest list in the manifests
of 17 GPU projects has 19 entries.
"""

TERMS = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
"""Where the required node selector terms are, below the Pod spec."""

IS_EXTENDED_RESOURCE = 'k.contains("/") && !k.contains("kubernetes.io/")'
"""CEL that holds for the name ``k`` of an extended resource."""

NODES_GROUP = "system:nodes"
"""The group of every kubelet (k8s.io/apiserver, ``user.NodesGroup``)."""

_USUAL_TEMPLATE = "spec.template"
_TEMPLATES = {
    kind: ".".join(path)
    for kind, path in sorted((kind, path) for (_, kind), path in CORE_WORKLOADS.items())
    if ".".join(path) != _USUAL_TEMPLATE
}
"""Where objects of other kinds have their pod template. A Pod is its own."""


def by_kind(of_pod: str, of_template: Callable[[str], str]) -> str:
    """Return CEL for what depends on where objects of the request's kind have their Pod spec.

    ``of_template`` returns it by the path of a pod template.
    """
    kind = "request.kind.kind"
    choices = [f'{kind} == "Pod" ? {of_pod}']
    choices += [f'{kind} == "{name}" ? {of_template(at)}' for name, at in _TEMPLATES.items()]
    return "(" + "\n  : ".join([*choices, of_template(_USUAL_TEMPLATE)]) + ")"


def pod_of(obj: str) -> str:
    """Return CEL for the Pod or the pod template of an object."""
    return by_kind(obj, lambda at: f"{obj}.{at}")


def holds_for_pod(condition: str) -> str:
    """Return CEL for a condition on ``pod``. Only the condition can use this name."""
    return let("pod", pod_of("object"), condition)


def present(owner: str, path: str) -> str:
    """Return CEL that holds if an optional field is there; ``path`` has each step to it."""
    steps = path.split(".")
    ends = (".".join(steps[: index + 1]) for index in range(len(steps)))
    return all_of(*(f"has({owner}.{end})" for end in ends))


def containers(pod: str = "pod") -> str:
    """Return CEL for the containers and init containers of a Pod."""
    return f"({pod}.spec.containers + {listed(f'{pod}.spec', 'initContainers')})"


def some(owner: str, path: str, item: str, condition: str) -> str:
    """Return CEL that holds if an entry of a list, or a key of a map, meets the condition.

    It also holds for more entries than ``LIMIT``, which are not searched.
    """
    field = f"{owner}.{path}"
    found = any_of(f"size({field}) > {LIMIT}", call(field, "exists", item, condition))
    return all_of(present(owner, path), found)


def has_short(owner: str, field: str) -> str:
    """Return CEL that holds if a list or a map has no more entries than ``LIMIT``."""
    return f"(!has({owner}.{field}) || size({owner}.{field}) <= {LIMIT})"


def by_old_and_new(expression: str) -> str:
    """Return CEL for an expression with the index ``i`` for the Pod, and on an update the old one.

    ``map`` gives no index.
    """
    return call("[0, 1].filter(i, i < size(variables.pods))", "map", "i", expression)


def short_lists(name: str, item: str, of: str, condition: str) -> Variable:
    """Return the variable that tells whether the lists of each ``item`` are short enough."""
    comment = "Whether all lists are short. Only the webhook checks longer ones."
    return Variable(name, comment, call(of, "all", item, condition))


def findings(name: str, expression: str, is_short: str) -> Variable:
    """Return CEL for the variable with the sentences; ``expression`` has those of index ``i``.

    The variable ``is_short`` tells whether the lists are short enough to be searched.

    API servers evaluate it also where the validation needs no message.
    """
    found = below(by_old_and_new(expression))
    found = f"(variables.{is_short}\n  ? {found}\n  : [[]])"
    return Variable(name, "The sentences about each of pods.", found)


def some_container(condition: str, *, debug: str = "") -> str:
    """Return CEL that holds if a container ``c`` meets the condition, or an init container.

    ``debug`` is the condition for ephemeral containers.
    """
    found = any_of(f"size({containers()}) > {LIMIT}", call(containers(), "exists", "c", condition))
    return any_of(found, some("pod.spec", "ephemeralContainers", "c", debug)) if debug else found


def listed(owner: str, field: str) -> str:
    """Return CEL for a list field that the API leaves out if it is empty."""
    return f"{owner}.?{field}.orValue([])"


def mapped(owner: str, field: str) -> str:
    """Return CEL for a map field that the API leaves out if it is empty."""
    return f"{owner}.?{field}.orValue({{}})"


def is_device(policy: Policy) -> str:
    """Return CEL that holds for a resource name ``k`` that may stand for a device.

    Any extended resource may be one: a DeviceClass may serve it, or its name is misspelled. An
    implicit name of a DeviceClass is one if a pool has the class.
    """
    prefix = text(IMPLICIT_RESOURCE_PREFIX)
    implicit = names(f"{IMPLICIT_RESOURCE_PREFIX}{name}" for name in policy.pools_of_class)
    return all_of('k.contains("/")', any_of(f"!k.startsWith({prefix})", f"k in {implicit}"))


def names_device(owner: str, policy: Policy) -> str:
    """Return CEL that holds for a container, or a Pod spec, whose resources may name a device."""
    return _some_resource(owner, is_device(policy))


def requests_device(policy: Policy) -> str:
    """Return CEL that holds for a container ``c`` that reserves a device of a pool, or may do so.

    A template may have limits alone, which the API server copies to the Pod's requests. Without a
    DeviceClass in the policy, no other resource than the pools' stands for a device.
    """
    is_named = (
        is_device(policy)
        if policy.pools_of_class
        else any_of(*(is_in("k", pool.resources) for pool in policy.pools))
    )
    return _some_resource("c", requested(is_named))


def requested(is_named: str) -> str:
    """Return CEL that holds for a resource ``k`` of a container ``c`` with a quantity above zero.

    The API has one spelling for a quantity of zero.
    """
    return all_of(is_named, 'string(c.resources[side][k]) != "0"')


def _some_resource(owner: str, condition: str) -> str:
    resources = f"{owner}.resources"
    found = any_of(
        f"size({resources}[side]) > {LIMIT}", call(f"{resources}[side]", "exists", "k", condition)
    )
    sides = call('["limits", "requests"]', "exists", "side", all_of(f"side in {resources}", found))
    return all_of(f"has({resources})", sides)


def some_resource(condition: str) -> str:
    """Return CEL that holds for a container ``c`` with such a resource ``k``, in short lists."""
    found = call("c.resources[side]", "exists", "k", condition)
    sides = call('["limits", "requests"]', "exists", "side", f"side in c.resources && {found}")
    return all_of("has(c.resources)", sides)


def may_request(policy: Policy, metadata: str) -> str:
    """Return CEL that holds for a Pod that requests a device of a pool, or may do so."""
    by_container = some_container(requests_device(policy))
    return any_of(has_claims(policy), by_container, requests_by_annotation(policy, metadata))


def requests_by_annotation(policy: Policy, metadata: str) -> str:
    """Return CEL that holds for a Pod whose scheduler may read a request from an annotation.

    Their values are left to the engine. ``metadata`` is CEL for the metadata with the annotations.
    """
    annotations = mapped(metadata.replace(".metadata", ".?metadata"), "annotations")
    return any_of(
        *(
            all_of(
                f'pod.spec.?schedulerName.orValue("") == {text(annotation.scheduler_name)}',
                f"{names(annotation.annotations)}.exists(k, k in {annotations})",
            )
            for annotation in policy.pools_of_annotations
        )
    )


def has_claims(policy: Policy) -> str:
    """Return CEL that holds for a Pod with resource claims, if a pool has DeviceClasses."""
    return "has(pod.spec.resourceClaims)" if policy.pools_of_class else "false"


def tolerates_pool(policy: Policy) -> str:
    """Return CEL that holds for a toleration of a pool's taint, by key and effect.

    Without a key or an effect, a toleration is for every taint; a DaemonSet may have such a one.
    """
    fencing = [taint for pool in policy.pools for taint in pool.fence]
    if not fencing:
        return "false"
    keys, effects = names({taint.key for taint in fencing}), names({t.effect for t in fencing})
    toleration = all_of(
        f"(has(t.key) ? t.key in {keys} : !{is_daemon_set()})",
        f"(!has(t.effect) || t.effect in {effects})",
    )
    return some("pod.spec", "tolerations", "t", toleration)


def selects_pool(policy: Policy) -> str:
    """Return CEL that holds for a Pod that selects nodes by a label of a pool."""
    labels = names({key for pool in policy.pools for key in pool.selector})
    # A node without the label meets the other operators, so that they select no pool.
    selecting = all_of(f"e.key in {labels}", '!(e.operator in ["NotIn", "DoesNotExist"])')
    return any_of(
        some("pod.spec", "nodeSelector", "k", f"k in {labels}"),
        some("pod.spec", TERMS, "t", some("t", "matchExpressions", "e", selecting)),
    )


def is_daemon_set() -> str:
    """Return CEL that holds for a DaemonSet, and for a Pod that its controller creates."""
    owners = listed("object.metadata", "ownerReferences")
    controller = 'o.?controller.orValue(false) && o.kind == "DaemonSet"'
    return any_of(
        'request.kind.kind == "DaemonSet"',
        all_of(
            f"request.userInfo.username == {text(DAEMON_SET_CONTROLLER)}",
            call(owners, "exists", "o", controller),
        ),
    )


def is_node() -> str:
    """Return CEL that holds for the request of a kubelet."""
    groups = "request.userInfo.groups"
    return all_of(f"has({groups})", f"{text(NODES_GROUP)} in {groups}")


def identifier(pool: Pool) -> str:
    """Return the pool's name in names of variables.

    Pool names are DNS labels, so no two of them come to the same identifier.
    """
    return pool.name.replace("-", "_")


def all_resources(policy: Policy) -> NameSet:
    """Return the resources of all pools."""
    return NameSet(pattern for pool in policy.pools for pattern in pool.resources.patterns)


def in_namespaces(policy: Policy, holds: Callable[[Actions], bool]) -> str:
    """Return CEL that holds in the namespaces for whose actions ``holds`` is true."""
    has = {name: holds(actions) for name, actions in policy.overridden.items()}
    here = holds(policy.general)
    if {here, *has.values()} == {here}:
        return _literal(here)
    # The exact name counts before the longest prefix.
    prefixes = sorted((name for name in has if name.endswith("*")), key=len, reverse=True)
    exact = has.keys() - set(prefixes)
    groups = [({name for name in exact if has[name] == same}, same) for same in (False, True)]
    groups += [({name}, has[name]) for name in prefixes]
    choices = [
        f"{is_in('request.namespace', NameSet(group))} ? {_literal(same)}"
        for group, same in groups
        if group
    ]
    return "(" + "\n  : ".join([*choices, _literal(here)]) + ")"


def _literal(value: bool) -> str:
    return "true" if value else "false"

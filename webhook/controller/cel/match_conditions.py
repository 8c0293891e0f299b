"""matchConditions of the webhooks: which requests API servers send at all.

A Pod that neither requests a device nor touches a fence never leaves the API server, so such Pods
do not notice when gpufence is down. The conditions may match too much and must never match too
little: they are at most as narrow as the engine. Each function but the last returns CEL about
``pod``; the registration says what ``pod`` is.

The API server evaluates all of them for every Pod and every webhook. Each list is walked once, for
a plain Pod all alternatives are evaluated, and ``in`` a constant list costs less than one ``==``.
Most of what a condition costs does not depend on its text, though: the API server first converts
the object, once for each webhook (``k8s.io/apiserver/pkg/admission/plugin/cel``, newActivation).
"""

from __future__ import annotations

from policies.device_injection import ANNOTATIONS, CUDA_VERSION, DEVICE_MOUNTS
from policies.policy import Policy
from policies.reach import EVERY_NODE
from policies.rules.check_device_leak import device_files, visible_devices_variables
from webhook.controller.cel.pods import (
    TERMS,
    by_kind,
    has_claims,
    is_daemon_set,
    is_node,
    mapped,
    names_device,
    present,
    selects_pool,
    some,
    some_container,
    tolerates_pool,
)
from webhook.controller.cel.text import all_of, any_of, names, negated, text


def is_mutated(policy: Policy) -> str:
    """Return CEL that holds for a Pod to which a mutation may add something.

    Its resources, claims or annotations name a device, or it tolerates every taint, is no node
    agent, and no kubelet sends it: mirror Pods must never wait.
    """
    container = some_container(names_device("c", policy))
    wildcard = all_of(_tolerates_every_taint(), negated(is_daemon_set()), negated(is_node()))
    return any_of(has_claims(policy), container, _annotated(policy), wildcard)


def concerns(policy: Policy) -> str:
    """Return CEL that holds for a Pod that names a device, or a taint or label of a pool.

    Node agents, the Pods of a DaemonSet that tolerate every taint, are left to ``selects_nodes``.
    """
    opens = any_of(sets_visible_devices("true", policy), mounts_devices())
    volume = f"has(v.hostPath) && v.hostPath.path.matches({text(device_directory(policy))})"
    return any_of(
        has_claims(policy),
        names_device("pod.spec", policy),
        selects_pool(policy),
        tolerates_pool(policy),
        some_container(any_of(names_device("c", policy), opens), debug=opens),
        some("pod.spec", "volumes", "v", volume),
        names_devices(),
        _annotated(policy),
    )


def sets_visible_devices(condition: str, policy: Policy) -> str:
    """Return CEL that holds for a container with such a variable ``e``, if the condition holds."""
    variables = names({*visible_devices_variables(policy), CUDA_VERSION})
    return some("c", "env", "e", all_of(f"e.name in {variables}", condition))


def mounts_devices() -> str:
    """Return CEL that holds for a container with a mount that may name devices."""
    return some(
        "c",
        "volumeMounts",
        "m",
        f"(m.mountPath.contains({text(DEVICE_MOUNTS)})"
        ' || has(m.subPath) && m.subPath.contains("dev/") || has(m.subPathExpr))',
    )


def names_node() -> str:
    """Return CEL that holds for a Pod that names its node, unless a node sends it.

    The scheduler does not see such a Pod, so no taint keeps it off a node. A kubelet also names the
    node of its mirror Pods, and must never wait. Of an existing Pod, the node is fixed.
    """
    return all_of(_sets_node_name(), negated(is_node()))


def selects_nodes(*, with_nodes: bool) -> str:
    """Return CEL that holds for a Pod that may select a pool's nodes by other labels or names.

    It also holds for node agents and for mirror Pods. ``with_nodes`` says that gpufence knows the
    cluster's nodes; without, it judges no node selection.
    """
    alternatives = [all_of(_tolerates_every_taint(), is_daemon_set())]
    if with_nodes:
        alternatives += [
            some("pod.spec", "nodeSelector", "k", f"!(k in {names(EVERY_NODE)})"),
            present("pod.spec", TERMS),
        ]
    return any_of(_sets_node_name(), *alternatives)


def is_judged(policy: Policy) -> str:
    """Return CEL that holds for an object with something new for the engine to judge.

    The annotations of a Pod that no kubelet runs yet still count, and without the annotation of its
    request, a Pod that still waits for a node is no GPU Pod.
    """
    annotations = names_devices()
    keys = {key for annotation in policy.pools_of_annotations for key in annotation.keys}
    if keys:
        new, old = (_annotation("k", obj) for obj in ("object", "oldObject"))
        annotations = any_of(annotations, f"{names(keys)}.exists(k, {new} != {old})")
    return any_of(_is_new_or_changed(), all_of('request.kind.kind == "Pod"', annotations))


def _is_new_or_changed() -> str:
    """Return CEL that holds for a new Pod spec or template, and for one that is not as before.

    Where it stays the same, every finding is one that the object had already, and those never
    block: finalizers go, labels change and replicas scale while no replica responds.
    """
    changed = by_kind("object.spec != oldObject.spec", lambda at: f"object.{at} != oldObject.{at}")
    return any_of('request.operation == "CREATE"', changed)


def changes_spec() -> str:
    """Return CEL that holds for a new custom resource, and for one with another spec."""
    both = "has(object.spec) && has(oldObject.spec)"
    return any_of('request.operation == "CREATE"', f"!({both})", "object.spec != oldObject.spec")


def device_directory(policy: Policy) -> str:
    """Return a regular expression for paths of the pools' device files, or of a whole /dev.

    It finds every path that the engine may judge, also before normalization; the engine puts the
    subPath of a mount behind a whole /dev.
    """
    return f"(^|/)dev([./]*$|/[./]*({device_files(policy)}|char)(/|$))"


def _tolerates_every_taint() -> str:
    return some("pod.spec", "tolerations", "t", "!has(t.key)")


def _sets_node_name() -> str:
    is_of_author = '(request.kind.kind != "Pod" || request.operation == "CREATE")'
    return all_of("has(pod.spec.nodeName)", is_of_author)


def names_devices() -> str:
    """Return CEL that holds for a Pod with annotations that name devices."""
    family = f'k.split("/", 2)[0] in {names(ANNOTATIONS)}'
    return some("pod", "metadata.annotations", "k", family)


def _annotated(policy: Policy) -> str:
    """Return CEL that holds for a Pod with an annotation that requests a device.

    For any scheduler: another mutating webhook may set ``schedulerName`` after this one.
    """
    keys = {key for annotation in policy.pools_of_annotations for key in annotation.annotations}
    annotations = mapped("pod.?metadata", "annotations")
    return f"{names(keys)}.exists(k, k in {annotations})" if keys else "false"


def _annotation(key: str, obj: str) -> str:
    """Return CEL for the value of an annotation, or an empty string."""
    return f'{obj}.metadata.?annotations[?{key}].orValue("")'

"""What the API server adds to a covered GPU Pod.

Each addition says when a Pod lacks something, for the match conditions of the webhooks, and which
JSON Patch operations add it, for the MutatingAdmissionPolicy. An operation adds a field that the
Pod does not have, and changes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policies.device_injection import VISIBLE_DEVICES
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Policy
from policies.rules.set_restricted_security_context import USER_ANNOTATION
from webhook.controller.cel.covered import covers, targets
from webhook.controller.cel.pods import (
    IS_EXTENDED_RESOURCE,
    all_resources,
    containers,
    listed,
    mapped,
    some_container,
    some_resource,
)
from webhook.controller.cel.text import (
    all_of,
    any_of,
    below,
    call,
    indented,
    is_in,
    joined,
    negated,
    printed,
    text,
)

_AFFINITY = "/spec/affinity"
_TERMS = f"{_AFFINITY}/nodeAffinity/{REQUIRED}/nodeSelectorTerms"


class Addition(NamedTuple):
    """One thing that GPU Pods need.

    ``lacks`` is CEL that holds for a ``pod`` without it, and ``operations`` CEL for the operations
    that add it to the ``object``.
    """

    comment: str
    lacks: str
    operations: str


def is_complete(policy: Policy, left_out: frozenset[str]) -> str:
    """Return CEL that holds for a covered ``pod`` to which the API server adds nothing."""
    return covers(policy, left_out, _lacks_nothing(policy))


def is_settled(policy: Policy, left_out: frozenset[str]) -> str:
    """Return CEL that holds for a complete ``pod``, and for a template of covered Pods."""
    return covers(policy, left_out, any_of('request.kind.kind != "Pod"', _lacks_nothing(policy)))


def _lacks_nothing(policy: Policy) -> str:
    return negated(any_of(*(each.lacks for each in additions(policy))))


def additions(policy: Policy) -> Iterator[Addition]:
    """Yield the additions that the policy requires."""
    yield _tolerations()
    most_labels = max((len(target.labels) for target in targets(policy, frozenset())), default=0)
    yield _node_affinity(most_labels)
    if policy.hardening.level == "restricted":
        yield from _annotation(policy)
        yield _security_context_of_pod(policy)
        yield _security_contexts_of_containers()
    yield _limits()
    yield _hidden_devices(policy)
    if any(pool.runtime_class for pool in policy.pools):
        yield _runtime_class()


def _tolerations() -> Addition:
    tolerated = all_of(
        "t.?effect.orValue(x.effect) == x.effect",
        "t.?key.orValue(x.key) == x.key",
        any_of(
            't.?operator.orValue("Equal") == "Exists"',
            '"value" in x && t.?value.orValue("") == x.value',
        ),
    )

    def missing(pod: str) -> str:
        found = call(listed(f"{pod}.spec", "tolerations"), "exists", "t", tolerated)
        return call("$target[0].tolerations", "filter", "x", negated(found))

    each = call(missing("object"), "map", "x", _add('"/spec/tolerations/-"', "x"))
    return Addition(
        "Tolerations for the taints of the pools.",
        f"size({missing('pod')}) > 0",
        joined(_where("!has(object.spec.tolerations)", _add('"/spec/tolerations"', "[]")), each),
    )


def _node_affinity(most_labels: int) -> Addition:
    """Require the labels of the target in every term, or in a new one."""
    lacks = (
        "(size($terms) == 0\n"
        "  ? size($labels[0]) > 0\n"
        f"  : $terms.exists(t, $labels[0].exists(l, !{_requires('t', 'l')})))"
    )
    expressions = call("$labels[0]", "map", "l", _requirement("l"))
    whole = f'{{"nodeSelectorTerms": [{{"matchExpressions": {expressions}}}]}}'
    has_node_affinity = "object.spec.?affinity.?nodeAffinity.hasValue()"
    new = joined(
        _where("!has(object.spec.affinity)", _add(text(_AFFINITY), "{}")),
        _where(f"!{has_node_affinity}", _add(text(f"{_AFFINITY}/nodeAffinity"), "{}")),
        f"[{_add(text(f'{_AFFINITY}/nodeAffinity/{REQUIRED}'), whole)}]",
    )
    return Addition(
        "The labels of the pools, in each required node selector term.",
        lacks,
        "(size($labels[0]) == 0\n  ? []\n"
        f"  : size($terms) == 0\n  ? {below(new)}\n"
        f"  : {below(joined(*map(_in_terms, range(most_labels))))})",
    )


def _in_terms(n: int) -> str:
    """Return CEL for the operations that add the label with this index to each term."""
    label = f"$labels[0][{n}]"
    path = f'"{_TERMS}/" + string(i) + "/matchExpressions/-"'
    lacking = f"!{_requires('t', label)}"
    each = _listed("$terms", "t", lacking, _add(path, _requirement(label)))
    return f"(size($labels[0]) <= {n}\n  ? []\n  : {below(each)})"


def _requires(term: str, label: str) -> str:
    """Return CEL that holds for a term that only nodes with the label meet."""
    values = f"{label}.values"
    met = (
        f'(size({values}) == 0\n  ? e.operator in ["Exists", "In"]\n'
        f'  : e.operator == "In" && e.values.all(v, v in {values}))'
    )
    return call(f"{term}.matchExpressions", "exists", "e", all_of(f"e.key == {label}.key", met))


def _requirement(label: str) -> str:
    """Return CEL for an entry of ``matchExpressions``."""
    of_any = f'{{"key": dyn({label}.key), "operator": dyn("Exists")}}'
    of_values = f'{{"key": dyn({label}.key), "operator": dyn("In"), "values": dyn({label}.values)}}'
    return f"(size({label}.values) == 0\n  ? {of_any}\n  : {of_values})"


def _annotation(policy: Policy) -> Iterator[Addition]:
    """Yield the annotation with the user of a Pod that sets none. No Pod needs it."""
    user = policy.hardening.run_as_user
    if user is None:
        return
    silent = call(containers("object"), "exists", "c", "!c.?securityContext.?runAsUser.hasValue()")
    added = all_of("!object.spec.?securityContext.?runAsUser.hasValue()", silent)
    key = USER_ANNOTATION.replace("/", "~1")
    yield Addition(
        "The user, where containers set none.",
        "false",
        joined(
            _where(
                all_of(added, "!has(object.metadata.annotations)"),
                _add('"/metadata/annotations"', "{}"),
            ),
            _where(
                all_of(
                    added,
                    f"!({text(USER_ANNOTATION)} in {mapped('object.metadata', 'annotations')})",
                ),
                _add(text(f"/metadata/annotations/{key}"), text(str(user))),
            ),
        ),
    )


def _security_context_of_pod(policy: Policy) -> Addition:
    hardening = policy.hardening
    values = {
        "runAsNonRoot": "true",
        "runAsUser": hardening.run_as_user,
        "runAsGroup": hardening.run_as_group,
        "fsGroup": hardening.fs_group,
        "seccompProfile": '{"type": "RuntimeDefault"}',
    }
    fields = {name: str(value) for name, value in values.items() if value is not None}
    lacks = {name: f"!{{}}.spec.?securityContext.?{name}.hasValue()" for name in fields}
    path = "/spec/securityContext"
    operations = [
        _where("!has(object.spec.securityContext)", _add(text(path), "{}")),
        *(
            _where(lacks[name].format("object"), _add(text(f"{path}/{name}"), value))
            for name, value in fields.items()
        ),
    ]
    if "fsGroup" in fields:
        unset = "!object.spec.?securityContext.?fsGroupChangePolicy.hasValue()"
        operations.append(
            _where(
                all_of(lacks["fsGroup"].format("object"), unset),
                _add(text(f"{path}/fsGroupChangePolicy"), '"OnRootMismatch"'),
            )
        )
    return Addition(
        "The security context of the Pod.",
        any_of(*(lack.format("pod") for lack in lacks.values())),
        joined(*operations),
    )


def _security_contexts_of_containers() -> Addition:
    escalates = "!c.?securityContext.?allowPrivilegeEscalation.hasValue()"
    drops = "c.?securityContext.?capabilities.?drop.orValue([])"
    keeps = f'!("ALL" in {drops})'
    steps = (
        ("!has(c.securityContext)", "", "{}"),
        (escalates, "/allowPrivilegeEscalation", "false"),
        ("!c.?securityContext.?capabilities.hasValue()", "/capabilities", "{}"),
        (f"size({drops}) == 0", "/capabilities/drop", '["ALL"]'),
        (all_of(f"size({drops}) > 0", keeps), "/capabilities/drop/-", '"ALL"'),
    )
    return Addition(
        "The security contexts of the containers.",
        some_container(any_of(escalates, keeps)),
        joined(
            *(
                _in_containers(condition, f"securityContext{path}", value)
                for condition, path, value in steps
            )
        ),
    )


def _limits() -> Addition:
    """Add limits where a container has only requests; the API server copies limits to requests."""
    requests = "c.?resources.?requests.orValue({})"
    lacks = all_of(
        "!c.?resources.?limits.hasValue()", call(requests, "exists", "k", IS_EXTENDED_RESOURCE)
    )
    devices = f"c.resources.requests.transformMap(k, v, {IS_EXTENDED_RESOURCE}, string(v))"
    return Addition(
        "The limits of devices, where containers have requests only.",
        some_container(lacks),
        _in_containers(lacks, "resources/limits", devices),
    )


def _hidden_devices(policy: Policy) -> Addition:
    requests = some_resource(is_in("k", all_resources(policy)))
    hidden = call(listed("c", "env"), "exists", "e", f"e.name == {text(VISIBLE_DEVICES)}")
    lacks = all_of("$target[0].hidesDevices", negated(requests), negated(hidden))
    value = f'{{"name": {text(VISIBLE_DEVICES)}, "value": "void"}}'
    return Addition(
        f"{VISIBLE_DEVICES}: void for containers that request no device.",
        some_container(lacks),
        joined(
            _in_containers(all_of(lacks, "!has(c.env)"), "env", "[]"),
            _in_containers(lacks, "env/-", value),
        ),
    )


def _runtime_class() -> Addition:
    lacks = all_of('$target[0].runtimeClass != ""', "!has({}.spec.runtimeClassName)")
    return Addition(
        "The RuntimeClass of the pool.",
        lacks.format("pod"),
        _where(lacks.format("object"), _add('"/spec/runtimeClassName"', "$target[0].runtimeClass")),
    )


def _add(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'


def _where(condition: str, operation: str) -> str:
    """Return CEL for a list with the operation if the condition holds, and an empty one if not."""
    return f"({below(printed(condition))}\n  ? [{below(operation)}]\n  : [])"


def _in_containers(condition: str, field: str, value: str) -> str:
    """Return CEL for the operations that add a field to each container ``c`` with the condition."""
    return joined(
        *(
            _listed(
                listed("object.spec", each),
                "c",
                condition,
                _add(f'"/spec/{each}/" + string(i) + "/{field}"', value),
            )
            for each in ("containers", "initContainers")
        )
    )


def _listed(subject: str, item: str, condition: str, operation: str) -> str:
    """Return CEL for an operation for each item of a list, with its index ``i``."""
    lines = f"{printed(condition)},\n{operation}"
    return f"{subject}.transformList(i, {item},\n{indented(lines)})"

"""The rule pool-trespass in CEL.

A Pod that may request a device of any pool is left to the engine: what else it may do depends on
claims, on device classes, and on the node affinity that the mutation adds.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.scheduling import FENCING_EFFECTS, REQUIRED, Taint, parse_int64
from policies.policy import Policy, Pool
from policies.reach import MIRROR_ANNOTATION, node_labels
from webhook.registration.admission_policies.cel import (
    Variable,
    all_of,
    any_of,
    has_required_terms,
    is_daemon_set,
    listed,
    mapped,
    may_request_device,
    names,
    required_terms,
    text,
)

_INTEGER = "^-?[0-9]{1,18}$"
_MOST_SPECS = 2
"""The object's and, on an update, the old one's."""
_LACK = "none of the Pod's containers requests a device of the pool"
_TERMS = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
_POSITIVE = "^[1-9][0-9]{0,17}$"


def concerns(spec: str, policy: Policy) -> str:
    """Return CEL that holds for every Pod spec in which the rule may find something."""
    keys = names({key for pool in policy.pools for key in pool.node_selector})
    in_term = f"{listed('t', 'matchExpressions')}.exists(e, e.key in {keys})"
    placing = [
        f"{mapped(spec, 'nodeSelector')}.exists(k, k in {keys})",
        f"{required_terms(spec)}.exists(t, {in_term})",
    ]
    fencing = [t for pool in policy.pools for t in pool.taints if t.effect in FENCING_EFFECTS]
    if fencing:
        covered = f"t, !has(t.key) || t.key in {names({taint.key for taint in fencing})}"
        placing.append(f"{listed(spec, 'tolerations')}.exists({covered})")
    return all_of(
        any_of(*placing), f"!{may_request_device(spec, spec.removeprefix('object.'), policy)}"
    )


def variables(path: str, policy: Policy, kinds: frozenset[str]) -> Iterator[Variable]:
    """Yield the variables of the rule; the last one has the findings of each of ``specs``.

    ``path`` is where the Pod's ``spec`` stands in the object, and ``kinds`` are the object's. Each
    pool has variables of its own, because the API server limits the length of an expression.
    """
    excused = [may_request_device("s", path, policy)]
    if "Pod" in kinds:
        excused.append(_is_mirror_pod())
    yield "excused", f"variables.specs.map(s, {any_of(*excused)})"
    by_pool = []
    for pool in policy.pools:
        # Pool names are DNS labels, so no two of them come to the same identifier.
        identifier = pool.name.replace("-", "_")
        labels = f"node_labels_{identifier}"
        yield labels, _labels_of(pool)
        findings = [
            *_by_toleration(path, pool, f"variables.{labels}", kinds),
            _by_selection(path, pool),
        ]
        sentences = ", ".join(findings)
        yield f"trespass_{identifier}", f'variables.specs.map(s, [{sentences}].filter(f, f != ""))'
        by_pool.append(f"variables.trespass_{identifier}[i]")
    indices = f"{list(range(_MOST_SPECS))}.filter(i, i < size(variables.specs))"
    yield "trespass", f"{indices}.map(i, variables.excused[i] ? [] : {' + '.join(by_pool)})"


def _labels_of(pool: Pool) -> str:
    """Return CEL for the labels that every node of the pool carries."""
    labels = sorted(node_labels(pool).items())
    return "{" + ", ".join(f"{text(key)}: {text(value)}" for key, value in labels) + "}"


def _by_toleration(path: str, pool: Pool, labels: str, kinds: frozenset[str]) -> Iterator[str]:
    """Yield CEL for the finding that a toleration reaches the pool; empty text if none does.

    With node facts, the engine excuses a Pod whose node selection accepts other nodes and none of
    the pool's, or that is bound to another node. So only a selection counts that surely accepts
    the pool's nodes: it names no label but theirs.
    """
    fencing = [taint for taint in pool.taints if taint.effect in FENCING_EFFECTS]
    if not fencing:
        return
    spec, tolerations = "s", listed("s", "tolerations")
    reaching = any_of(*(_may_tolerate(taint) for taint in fencing))
    by_agent = any_of(*is_daemon_set(kinds))
    reaching = all_of(reaching, f"has(t.key) || !{by_agent}" if by_agent != "false" else "true")
    selector = mapped(spec, "nodeSelector")
    surely = (
        f"!has(t.matchFields) && has(t.matchExpressions) && "
        f"t.matchExpressions.all(e, e.key in {labels} && {_is_met(f'{labels}[e.key]')})"
    )
    accepted = all_of(
        f"!has({spec}.nodeName)",
        f"{selector}.all(k, k in {labels} && {labels}[k] == {selector}[k])",
        f"!{has_required_terms(spec)} || {required_terms(spec)}.exists(t, {surely})",
    )
    taints = ", ".join(map(str, fencing))
    before = f"a Pod without a GPU request tolerates the taint of GPU nodes: {path}.tolerations["
    after = (
        f"] lets the Pod run on the nodes of pool {pool.name} with taint {taints}, but {_LACK}. "
        f"Remove the toleration, or require {_avoid(pool)} in every term of its required node "
        f"affinity, or request a device: {pool.example_request}"
    )
    message = f"{text(before)} + string(i) + {text(after)}"
    index = f"({accepted} ? {tolerations}.map(t, {reaching}).indexOf(true) : -1)"
    yield f'[{index}].map(i, i < 0 ? "" : {message})[0]'


def _by_selection(path: str, pool: Pool) -> str:
    """Return CEL for the finding that the node selection requires the pool's labels, or empty."""
    spec = "s"
    selector, labels = mapped(spec, "nodeSelector"), sorted(pool.node_selector.items())
    in_selector = all_of(
        *(f"{text(k)} in {selector} && {selector}[{text(k)}] == {text(v)}" for k, v in labels)
    )
    index = (
        f"({has_required_terms(spec)} ? "
        f"{required_terms(spec)}.map(t, {_requires_pool(selector, pool)}).indexOf(true) : "
        f"{in_selector} ? -2 : -1)"
    )
    described = ", ".join(f"{key}={value}" for key, value in labels)
    before = "a Pod without a GPU request selects GPU nodes: "
    in_terms = f"{text(f'{path}.{_TERMS}[')} + string(i) + {text(']')}"
    after = (
        f" requires nodes with {described}, which are the nodes of pool {pool.name}, but {_LACK}. "
        f"Remove the node selection, or request a device: {pool.example_request}"
    )
    where = f"(i == -2 ? {text(f'{path}.nodeSelector')} : {in_terms})"
    message = f"{text(before)} + {where} + {text(after)}"
    return f'[{index}].map(i, i == -1 ? "" : {message})[0]'


def _requires_pool(selector: str, pool: Pool) -> str:
    """Return CEL that holds for a term ``t`` that names all labels of the pool, and can be met.

    Of the other labels, a node of the pool may have any value. A term that contradicts itself
    matches no node; where that takes comparing numbers, or several names, it is not judged.
    """
    expressions = listed("t", "matchExpressions")
    conditions = ["has(t.matchExpressions) || has(t.matchFields)"]
    for key, value in sorted(pool.node_selector.items()):
        k, v = text(key), text(value)
        required = (
            f'{expressions}.exists(e, e.key == {k} && !(e.operator in ["NotIn", "DoesNotExist"]))'
        )
        conditions += [
            f"{k} in {selector} ? {selector}[{k}] == {v} : {required}",
            f"{expressions}.all(e, e.key != {k} || {_is_met(v, value)})",
        ]
    keys = names(pool.node_selector)
    others = (
        f"{expressions}.all(e, e.key in {keys} || (e.key in {selector} ? "
        f"{_is_met(f'{selector}[e.key]')} : {_can_be_met(expressions)}))"
    )
    return all_of(*conditions, f"size({listed('t', 'matchFields')}) < 2", others)


def _can_be_met(expressions: str) -> str:
    """Return CEL that holds for an expression ``e`` that some value of its label meets.

    Together with all other expressions on the same label.
    """
    same = f"{expressions}.filter(o, o.key == e.key)"
    met = (
        'o.operator == "In" ? v in o.values : '
        'o.operator == "NotIn" ? !(v in o.values) : o.operator == "Exists"'
    )
    return (
        f'(e.operator == "NotIn" ? true : '
        f'e.operator == "In" ? e.values.exists(v, {same}.all(o, {met})) : '
        f'e.operator == "Exists" ? {same}.all(o, o.operator != "DoesNotExist") : '
        f'e.operator == "DoesNotExist" ? '
        f'{same}.all(o, o.operator in ["DoesNotExist", "NotIn"]) : '
        f'size({same}) == 1 && e.values[0].matches("{_POSITIVE}"))'
    )


def _is_met(value: str, known: str = "") -> str:
    """Return CEL that holds for an expression ``e`` that the label value meets.

    ``value`` is CEL; ``known`` is its text where the compiler knows it, without which numbers are
    not compared.
    """
    met = (
        f'e.operator == "In" ? {value} in e.values : '
        f'e.operator == "NotIn" ? !({value} in e.values) : '
    )
    number = parse_int64(known)
    if number is None:
        return f'({met}e.operator == "Exists")'
    bound = "int(e.values[0])"
    return (
        f'({met}e.operator == "Exists" || e.operator in ["Gt", "Lt"] && '
        f'e.values[0].matches("{_INTEGER}") && '
        f'(e.operator == "Gt" ? {number} > {bound} : {number} < {bound}))'
    )


def _may_tolerate(taint: Taint) -> str:
    """Return CEL that holds for a toleration ``t`` that covers the taint.

    Where the taint leaves its value open, for some value. The numeric operators are not judged.
    """
    value = "true"
    if taint.value is not None:
        equal = f't.?value.orValue("") == {text(taint.value)}'
        value = f't.?operator.orValue("Equal") == "Exists" || {equal}'
    return all_of(
        f"t.?effect.orValue({text(taint.effect)}) == {text(taint.effect)}",
        f"t.?key.orValue({text(taint.key)}) == {text(taint.key)}",
        't.?operator.orValue("Equal") in ["Equal", "Exists"]',
        value,
    )


def _is_mirror_pod() -> str:
    annotations = mapped("object.metadata", "annotations")
    return (
        f'request.userInfo.username == "system:node:" + s.?nodeName.orValue("") && '
        f"{text(MIRROR_ANNOTATION)} in {annotations}"
    )


def _avoid(pool: Pool) -> str:
    key, value = next(iter(pool.node_selector.items()))
    return f"{{key: {key}, operator: NotIn, values: ['{value}']}}"

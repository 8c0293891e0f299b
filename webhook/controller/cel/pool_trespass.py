"""The rule pool-trespass in CEL.

A Pod that may request a device of any pool is left to the engine: what else it may do depends on
claims, on device classes, and on the node affinity that the mutation adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies.kubernetes.scheduling import Taint, parse_int64
from policies.policy import Policy, Pool
from policies.reach import MIRROR_ANNOTATION, selector_of_every_node
from policies.rules.check_pool_trespass import (
    LACK,
    SELECTION,
    TOLERATION,
    request_or,
    selects,
    tolerates,
    wildcard_remediation,
)
from policies.wording import capitalized
from webhook.controller.cel.pods import (
    LIMIT,
    TERMS,
    by_old_and_new,
    findings,
    identifier,
    is_daemon_set,
    listed,
    mapped,
    may_request,
    selects_pool,
    short_lists,
    some,
)
from webhook.controller.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    is_in,
    joined,
    let,
    names,
    negated,
    sentence,
    text,
)

SUMMARY = (
    "Pods and pod templates that request no device of a pool, and tolerate a taint of its nodes or "
    "select them by its labels"
)

FINDINGS = "trespasses"

_INTEGER = "^-?[0-9]{1,18}$"
_POSITIVE = "^[1-9][0-9]{0,17}$"
_FIRST = [*range(1, 16)]
"""A message names the entries of a list at these indexes, and the first one at any index."""
_EXPRESSIONS = 100
"""How many expressions of a term are compared with each other."""


def concerns(policy: Policy) -> str:
    """Return CEL that holds for every ``pod`` in which the rule may find something."""
    keys = names({taint.key for pool in policy.pools for taint in pool.fence})
    tolerates = some("pod.spec", "tolerations", "t", f"!has(t.key) || t.key in {keys}")
    placed = any_of(tolerates, selects_pool(policy))
    return all_of(placed, negated(is_daemon_set()), negated(may_request(policy, "pod.metadata")))


def variables(policy: Policy) -> Iterator[Variable]:
    """Yield the variables of the rule; the last one has the sentences about each of ``pods``.

    Each pool has variables of its own, because the API server limits the length of an expression.
    """
    fields = ",\n  ".join(
        (
            f'"tolerations": dyn({listed("pod.spec", "tolerations")})',
            f'"selector": dyn({mapped("pod.spec", "nodeSelector")})',
            f'"terms": dyn({listed("pod.spec", TERMS.replace(".", ".?"))})',
            '"isBound": dyn(has(pod.spec.nodeName))',
        )
    )
    yield Variable(
        "placements",
        "What each of pods says about its nodes.",
        call("variables.pods", "map", "pod", f"{{\n  {fields}\n}}"),
    )
    expressions = listed("t", "matchExpressions")
    short_values = call(expressions, "all", "e", f"size({listed('e', 'values')}) <= {LIMIT}")
    short_term = all_of(f"size({expressions}) <= {_EXPRESSIONS}", short_values)
    short = all_of(
        *(f"size(p.{field}) <= {LIMIT}" for field in ("tolerations", "selector", "terms")),
        call("p.terms", "all", "t", short_term),
    )
    yield short_lists("hasShortPlacement", "p", "variables.placements", short)
    may = any_of(
        may_request(policy, "variables.pods[0].metadata"), is_daemon_set(), _is_mirror_pod()
    )
    yield Variable(
        "isExempt",
        "Whether each of pods requests a device of any pool, or may do so: what else it may "
        "do, the webhook knows. The Pods of DaemonSets and of kubelets are exempt, too.",
        call("variables.pods", "map", "pod", may),
    )
    for pool in policy.pools:
        yield from _of_pool(pool)
    by_pool = " + ".join(f"variables.sentences_{identifier(pool)}[i]" for pool in policy.pools)
    found = f"(variables.isExempt[i] ? [] : {by_pool})"
    yield findings("trespassSentences", found, "hasShortPlacement")


def _of_pool(pool: Pool) -> Iterator[Variable]:
    name, about = identifier(pool), f"pool {pool.name}"
    found = []
    yield Variable(
        f"terms_{name}",
        f"The indexes of the terms that require the labels of {about}; 0 for the node selector.",
        call("variables.placements", "map", "p", _true(_terms(pool))),
    )
    if pool.fence:
        labels = ", ".join(
            f"{text(key)}: {names(values)}"
            for key, values in sorted(selector_of_every_node(pool).items())
        )
        yield Variable(
            f"labels_{name}",
            f"Labels of every node of {about}, with their possible values; an empty list "
            "stands for any value.",
            f"{{{labels}}}",
        )
        yield Variable(
            f"accepts_{name}",
            f"Whether each of pods surely accepts the nodes of {about}, because it names no "
            "other label. Where it does, the nodes decide, and the webhook knows them.",
            call("variables.placements", "map", "p", _accepts(f"variables.labels_{name}")),
        )
        yield Variable(
            f"tolerations_{name}",
            f"The indexes of the tolerations of a taint of {about}. A mutation keeps the Pods "
            "of a template with a wildcard off its nodes.",
            call("variables.placements", "map", "p", _true(_tolerations(pool))),
        )
        said = _tolerates(pool, "variables.placements[i].tolerations[n]")
        # A wildcard is no finding where the node selection is one.
        at_fault = any_of(
            "has(variables.placements[i].tolerations[n].key)",
            f"size(variables.terms_{name}[i]) == 0",
        )
        reported = call(f"variables.tolerations_{name}[i]", "filter", "n", at_fault)
        each = call(reported, "map", "n", said)
        found.append(f"(variables.accepts_{name}[i]\n  ? {below(each)}\n  : [])")
    found.append(_selects(pool, f"variables.terms_{name}[i]", "variables.placements[i].selector"))
    yield Variable(
        f"sentences_{name}", f"The sentences about {about}.", by_old_and_new(joined(*found))
    )


def _accepts(labels: str) -> str:
    """Return CEL that holds for a placement ``p`` that surely accepts nodes with the labels.

    With node facts, the engine excuses a Pod whose node selection accepts other nodes and none of
    the pool's, or that is bound to another node. So only a selection counts that names no label but
    theirs.
    """
    values = f"{labels}[e.key]"
    met = all_of(
        f"e.key in {labels}",
        f"(size({values}) == 0\n"
        '  ? e.operator == "Exists"\n'
        f"  : {below(call(values, 'all', 'v', _is_met('v')))})",
    )
    surely = all_of(
        "!has(t.matchFields)",
        "has(t.matchExpressions)",
        call("t.matchExpressions", "all", "e", met),
    )
    return all_of(
        "!p.isBound",
        call("p.selector", "all", "k", f"k in {labels} && {labels}[k] == [p.selector[k]]"),
        any_of("size(p.terms) == 0", call("p.terms", "exists", "t", surely)),
    )


def _true(flags: str) -> str:
    """Return CEL for the indexes that are true: those of the first entries, and the first of all.

    CEL has no way to count to the length of a list.
    """
    first = "flags.indexOf(true)"
    others = f"{_FIRST}.filter(n, n > {first} && n < size(flags) && flags[n])"
    found = f"({first} < 0\n  ? []\n  : [{first}]\n    + {others})"
    return call(f"[{flags}]", "map", "flags", found) + "[0]"


def _tolerations(pool: Pool) -> str:
    """Return CEL for whether each toleration of the placement ``p`` is for a taint of the pool."""
    reaching = all_of(
        any_of(*(_may_tolerate(taint) for taint in pool.fence)),
        '(has(t.key) || request.kind.kind == "Pod")',
    )
    return call("p.tolerations", "map", "t", reaching)


def _tolerates(pool: Pool, toleration: str) -> str:
    """Return CEL for the sentences about a toleration with index ``n``."""
    remediation = _remediation(TOLERATION, pool)
    return joined(
        "variables.path",
        '".tolerations[" + string(n)',
        sentence(f"]: {tolerates([pool])}, but {LACK}. "),
        f"(has({toleration}.key)\n"
        f"  ? {below(remediation)}\n"
        f"  : {below(sentence(wildcard_remediation([pool])))})",
    )


def _remediation(remove: str, pool: Pool) -> str:
    """Return CEL for what to do: it depends on the namespace of the object."""
    said = sentence(request_or(remove, [pool]))
    if pool.allowed_namespaces:
        allowed = is_in("request.namespace", pool.allowed_namespaces.names)
        said = f"({allowed}\n  ? {below(said)}\n  : {text(capitalized(remove))})"
    return said


def _terms(pool: Pool) -> str:
    """Return CEL for whether each term of the placement ``p`` requires the pool."""
    in_selector = all_of(
        *(
            all_of(f"{text(key)} in p.selector", *_has_one_of(key, values))
            for key, values in sorted(pool.selector.items())
        )
    )
    required = call("p.terms", "map", "t", _requires_pool(pool))
    return f"(size(p.terms) == 0\n  ? [{in_selector}]\n  : {below(required)})"


def _selects(pool: Pool, terms: str, selector: str) -> str:
    """Return CEL for the sentences about the terms.

    One sentence stands for all of them if the node selector names a label of the pool: it is at
    fault.
    """
    by_key = "\n  : ".join(
        f"{text(key)} in {selector} ? {text(f'.nodeSelector[{key}]')}" for key in pool.selector
    )
    said = joined(
        "variables.path",
        f"({by_key}\n  : {text(f'.{TERMS}[')} + string(n) + {text(']')})",
        sentence(f": {selects([pool])}, but {LACK}. "),
        _remediation(SELECTION, pool),
    )
    is_alone = f"{names(pool.selector)}.exists(k, k in {selector})"
    named = call(terms, "filter", "n", any_of(f"n == {terms}[0]", f"!{is_alone}"))
    return call(named, "map", "n", said)


def _requires_pool(pool: Pool) -> str:
    """Return CEL that holds for a term ``t`` that names all labels of the pool, and can be met.

    Of the other labels, a node of the pool may have any value. A term that contradicts itself
    matches no node; where that takes comparing numbers, or several names, it is not judged.
    """
    expressions = listed("t", "matchExpressions")
    conditions = ["(has(t.matchExpressions) || has(t.matchFields))"]
    for key, values in sorted(pool.selector.items()):
        k = text(key)
        required = f'e.key == {k} && !(e.operator in ["NotIn", "DoesNotExist"])'
        named = below(call(expressions, "exists", "e", required))
        has_value = " && ".join(_has_one_of(key, values)) or "true"
        conditions.append(f"({k} in p.selector\n  ? {has_value}\n  : {named})")
        if values:
            met = (any_of(f"e.key != {k}", _is_met(text(value), value)) for value in values)
            choices = [call(expressions, "all", "e", each) for each in met]
            free = [f"{k} in p.selector"] if len(values) > 1 else []
            conditions.append(any_of(*free, *choices))
    in_selector = all_of("e.key in p.selector", _is_met("p.selector[e.key]"))
    other = all_of("!(e.key in p.selector)", _can_be_met(expressions))
    one = names(key for key, values in pool.selector.items() if len(values) == 1)
    several = names(key for key, values in pool.selector.items() if len(values) > 1)
    others = any_of(
        f"e.key in {one}", in_selector, f"!(e.key in p.selector) && e.key in {several}", other
    )
    return all_of(
        *conditions,
        f"size({listed('t', 'matchFields')}) < 2",
        call(expressions, "all", "e", others),
    )


def _has_one_of(key: str, values: Sequence[str]) -> Iterator[str]:
    """Yield CEL that holds if the node selector of ``p`` requires one of the values."""
    selected = f"p.selector[{text(key)}]"
    if len(values) == 1:
        yield f"{selected} == {text(values[0])}"
    elif values:
        yield f"{selected} in {names(values)}"


def _can_be_met(expressions: str) -> str:
    """Return CEL that holds for an expression ``e`` that some value of its label meets.

    Together with all other expressions on the same label.
    """
    met = (
        '(o.operator == "In" ? v in o.values\n'
        '  : o.operator == "NotIn" ? !(v in o.values)\n'
        '  : o.operator == "Exists")'
    )
    listed_value = call("e.values", "exists", "v", call("same", "all", "o", met))
    choices = (
        '(e.operator == "NotIn" ? true\n'
        f': e.operator == "In" ? {listed_value}\n'
        ': e.operator == "Exists" ? same.all(o, o.operator != "DoesNotExist")\n'
        ': e.operator == "DoesNotExist"\n'
        '  ? same.all(o, o.operator in ["DoesNotExist", "NotIn"])\n'
        f': size(same) == 1 && e.values[0].matches("{_POSITIVE}"))'
    )
    return let("same", f"{expressions}.filter(o, o.key == e.key)", below(choices))


def _is_met(value: str, known: str = "") -> str:
    """Return CEL that holds for an expression ``e`` that the label value meets.

    ``value`` is CEL; ``known`` is its text where the compiler knows it, without which numbers are
    not compared.
    """
    otherwise = 'e.operator == "Exists"'
    number = parse_int64(known)
    if number is not None:
        bound = "int(e.values[0])"
        otherwise = any_of(
            otherwise,
            all_of(
                'e.operator in ["Gt", "Lt"]',
                f'e.values[0].matches("{_INTEGER}")',
                f'(e.operator == "Gt" ? {number} > {bound} : {number} < {bound})',
            ),
        )
    return (
        f'(e.operator == "In" ? {value} in e.values\n'
        f'  : e.operator == "NotIn" ? !({value} in e.values)\n'
        f"  : {below(otherwise)})"
    )


def _may_tolerate(taint: Taint) -> str:
    """Return CEL that holds for a toleration ``t`` that covers the taint.

    Where the taint leaves its value open, for some value. The numeric operators are not judged.
    """
    effect, key = text(taint.effect), text(taint.key)
    conditions = [
        f"t.?effect.orValue({effect}) == {effect}",
        f"t.?key.orValue({key}) == {key}",
        't.?operator.orValue("Equal") in ["Equal", "Exists"]',
    ]
    if taint.value is not None:
        equal = f't.?value.orValue("") == {text(taint.value)}'
        conditions.append(any_of('t.?operator.orValue("Equal") == "Exists"', equal))
    return all_of(*conditions)


def _is_mirror_pod() -> str:
    return all_of(
        'request.kind.kind == "Pod"',
        'request.userInfo.username == "system:node:" + pod.spec.?nodeName.orValue("")',
        f"{text(MIRROR_ANNOTATION)} in {mapped('object.metadata', 'annotations')}",
    )

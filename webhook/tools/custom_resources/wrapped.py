"""The parts of a custom resource that run in a namespace of their own: wrapped objects, and charts.

Exemptions, overrides, tenants and exceptions count by the namespace of the Pods, not by that of the
object around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import Path, descend, text_at
from policies.kubernetes.templates import group_kind, is_object
from webhook.cluster.judge import Judgement
from webhook.tools.custom_resources.kinds import KNOWN


class Part(NamedTuple):
    """What an object makes in one namespace; where whole objects are applied, one of them."""

    namespace: str
    applied: Path = ()
    """The path of the object that is applied."""


def part_at(obj: JSONObject, own: str, otherwise: str, path: Path) -> Part:
    """Return the part that a path of an object of namespace ``own`` belongs to.

    What is applied elsewhere, and names no namespace, is in the namespace ``otherwise``.
    """
    is_elsewhere = _is_elsewhere(obj)
    namespace = _target(obj) or (otherwise if is_elsewhere else own)
    applied: Path = ()
    value: Any = obj
    for number, step in enumerate(path, 1):
        value = descend(value, (step,))
        if isinstance(value, dict) and is_object(value):
            written = text_at(value, "metadata", "namespace")
            if _is_elsewhere(value):
                written = ""
            namespace = _target(value) or written or namespace
            applied = path[:number] if is_elsewhere else ()
    return Part(namespace, applied)


def _is_elsewhere(obj: JSONObject) -> bool:
    return "/".join(group_kind(obj)) in KNOWN.applied_elsewhere


def _target(obj: JSONObject) -> str:
    path = KNOWN.namespaces.get("/".join(group_kind(obj)))
    return text_at(obj, *path.split(".")) if path else ""


_SUMS = ("findings", "excepted", "known", "unjudged", "operations", "mutations", "failures")


def joined(judgements: Sequence[Judgement]) -> Judgement:
    """Return the judgement on an object from those on its parts."""
    first = next((each for each in judgements if not each.is_decided), judgements[0])
    if len(judgements) == 1 or not first.is_decided:
        return first
    decisions = [each.decision for each in judgements]

    def every(name: str) -> Iterable[Any]:
        return chain.from_iterable(getattr(each, name) for each in decisions)

    exemptions = [each.exemption for each in decisions]
    decision = replace(
        first.decision,
        exemption="; ".join(dict.fromkeys(exemptions)) if all(exemptions) else "",
        has_template=any(each.has_template for each in decisions),
        **{name: tuple(every(name)) for name in _SUMS},
        **{name: tuple(dict.fromkeys(every(name))) for name in ("pools", "missing_facts")},
    )
    users, bugs = (
        tuple(dict.fromkeys(chain.from_iterable(getattr(each, name) for each in judgements)))
        for name in ("users", "bugs")
    )
    return Judgement(decision, users, None, bugs)

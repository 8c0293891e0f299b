"""How a registered object differs from the one that is wanted, and what repairs it. Pure.

One comparison for webhook configurations, admission policies and their bindings: the controller
repairs the differences and logs them, and ``gpufence doctor`` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.selector import NAMESPACE_LABEL
from webhook.registered import is_own

UNNEEDED = "unneeded"
"""The field of a difference that is a whole webhook."""

_MEANING = {
    "matchConditions": "API servers do not call gpufence for objects that do not match",
    "objectSelector": "API servers do not call gpufence for objects that do not match",
    "rules": "API servers call gpufence only for these resources",
}


class Difference(NamedTuple):
    """A field of an object, or of one of its webhooks, and what is wrong with it."""

    field: str
    problem: str

    def __str__(self) -> str:
        return self.problem


def drift(desired: JSONObject, live: JSONObject) -> list[Difference]:
    """Return what differs; nothing if all is as wanted.

    The webhooks of gpufence must be exactly as wanted: an additional match condition or selector
    would let Pods past, and an additional webhook is a remainder of an earlier policy. Additional
    labels, annotations and webhooks of others are no drift, and neither is a caBundle where none is
    wanted (cert-manager injects it).
    """
    return [*_metadata(desired["metadata"], live.get("metadata") or {}), *_content(desired, live)]


def repaired(desired: JSONObject, live: JSONObject) -> JSONObject:
    """Return ``live`` with gpufence's part as wanted, and everything else unchanged."""
    metadata = {**(live.get("metadata") or {})}
    for key, value in desired["metadata"].items():
        metadata[key] = {**(metadata.get(key) or {}), **value} if isinstance(value, dict) else value
    result = {**live, **desired, "metadata": metadata}
    if "webhooks" in desired:
        before = _by_name(live)
        own = [
            _with_bundle(webhook, before.get(name)) for name, webhook in _by_name(desired).items()
        ]
        result["webhooks"] = [*own, *(w for name, w in before.items() if not is_own(name))]
    return result


def _metadata(desired: JSONObject, live: JSONObject) -> Iterator[Difference]:
    for part in ("labels", "annotations"):
        present = live.get(part) or {}
        for key, value in (desired.get(part) or {}).items():
            if present.get(key) != value:
                yield Difference("metadata", f"{part[:-1]} {key} is {present.get(key)!r}")
    owners = [owner.get("uid") for owner in live.get("ownerReferences") or ()]
    for owner in desired.get("ownerReferences") or ():
        if owner["uid"] not in owners:
            yield Difference("metadata", f"it is not owned by {owner['kind']} {owner['name']}")


def _content(desired: JSONObject, live: JSONObject) -> Iterator[Difference]:
    if "webhooks" not in desired:
        yield from _fields("the spec", _flat(desired), _flat(live))
        return
    wanted, present = _by_name(desired), _by_name(live)
    for name, webhook in wanted.items():
        if name in present:
            target = _with_bundle(webhook, present[name])
            yield from _fields(f"webhook {name}", target, present[name])
        else:
            yield Difference("webhooks", f"webhook {name} is missing")
    for name in present:
        if name not in wanted and is_own(name):
            yield Difference(UNNEEDED, f"webhook {name} is not needed")


def _flat(policy: JSONObject) -> JSONObject:
    """Return the fields of a policy's or binding's spec, with those of what it matches."""
    spec = {**(policy.get("spec") or {})}
    matched = spec.pop("matchConstraints", None) or spec.pop("matchResources", None)
    return spec | (matched or {})


def _fields(owner: str, desired: JSONObject, live: JSONObject) -> Iterator[Difference]:
    for field in sorted({*desired, *live}):
        target, value = desired.get(field), live.get(field)
        if target != value:
            yield Difference(field, f"{field} of {owner} {_problem(field, target, value)}")


def _problem(field: str, desired: object, live: object) -> str:
    if isinstance(desired, str | int):
        return f"is {live}, but must be {desired}"
    excluded, wanted = _excluded(live), _excluded(desired)
    if excluded is not None and wanted is not None:
        if added := sorted(excluded - wanted):
            return f"excludes {', '.join(added)}, where gpufence therefore has no effect"
        return f"does not exclude {', '.join(sorted(wanted - excluded))}"
    meaning = _MEANING.get(field)
    return f"does not match the policy: {meaning}" if meaning else "does not match the policy"


def _excluded(selector: object) -> frozenset[str] | None:
    """Return the namespaces that a selector excludes; None for anything else."""
    match selector:
        case {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}], **rest}:
            return frozenset(values) if key == NAMESPACE_LABEL and not rest else None
    return None


def _by_name(configuration: JSONObject) -> dict[str, JSONObject]:
    return {webhook.get("name") or "": webhook for webhook in configuration.get("webhooks") or ()}


def _with_bundle(webhook: JSONObject, live: Any) -> JSONObject:
    """Return the webhook with the caBundle that is there, where none is wanted."""
    config = webhook["clientConfig"]
    bundle = ((live or {}).get("clientConfig") or {}).get("caBundle")
    if "caBundle" in config or not bundle:
        return webhook
    return {**webhook, "clientConfig": {**config, "caBundle": bundle}}

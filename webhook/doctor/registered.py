"""Whether the webhook configurations exist, and match policy and release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from policies.kubernetes.objects import JSONObject
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.registration.configurations import NAMESPACE_LABEL, Registration, configurations
from webhook.registration.drift import is_ours
from webhook.registration.leader_election import PAUSED

_FIELDS = (
    "rules",
    "matchConditions",
    "namespaceSelector",
    "objectSelector",
    "failurePolicy",
    "reinvocationPolicy",
    "timeoutSeconds",
    "matchPolicy",
    "clientConfig",
)
_MEANING = {
    "matchConditions": "API servers do not ask about what these leave out",
    "objectSelector": "API servers do not ask about what it leaves out",
    "rules": "API servers ask about these, and about nothing else",
    "reinvocationPolicy": "what other webhooks add afterwards is not seen",
}
_REPAIR = (
    "Replicas that register repair it within seconds: if it stays, see who writes it in "
    "metadata.managedFields, and the replicas' logs"
)


def check(found: Installation) -> Iterator[Line]:
    """Yield whether each configuration is there, and a line for each field that must be right."""
    present = {}
    for kind, configuration in found.configurations.items():
        if kind in found.refused:
            yield skip(kind, f"may not be read: {found.refused[kind]}")
        elif configuration is None:
            yield fail(kind, f"there is no {kind} {found.name}", _why_missing(found))
        else:
            present[kind] = configuration
    if not present:
        return
    if found.policy is None:
        yield skip("configurations", "what they should be follows from the policy", "Mend that")
        return
    registration = wanted_registration(found)
    if registration is None:
        yield skip("configurations", "it is not known how gpufence is reached")
        return
    wanted = {each["kind"]: each for each in configurations(found.policy, registration)}
    pairs = [pair for kind in present for pair in _pairs(kind, wanted[kind], present[kind])]
    yield from _completeness(wanted, present)
    for field in _FIELDS:
        of_field = [pair for pair in pairs if field in pair[1]]
        yield _field(field, of_field, _is_known(field, found))


def wanted_registration(found: Installation) -> Registration | None:
    """Return the registration as it should be; the caBundle is looked at with the certificate.

    Without a Deployment that says it, what only a command line can say is taken for right.
    """
    if found.deployed is not None and found.deployed.registration.is_addressed:
        deployed = found.deployed.registration
        excluded = deployed.excluded_namespaces | found.other_releases
        return replace(deployed, ca_bundle="", excluded_namespaces=excluded)
    address = found.address
    if address is None:
        return None
    timeouts = {
        webhook.get("timeoutSeconds")
        for each in found.configurations.values()
        for webhook in (each or {}).get("webhooks") or ()
    }
    return replace(
        address,
        timeout_seconds=min(filter(None, timeouts), default=3),
        excluded_namespaces=frozenset({address.service[0]} if address.service else ()),
    )


def _why_missing(found: Installation) -> str:
    annotations = ((found.lease or {}).get("metadata") or {}).get("annotations") or {}
    if since := annotations.get(PAUSED):
        return f"Somebody ran gpufence unregister at {since}: run gpufence unregister --undo"
    if found.deployed is not None and not found.deployed.registers:
        return "Apply what gpufence manifests prints: this release does not register itself"
    return "See in the logs of the replicas what keeps them from registering"


def _pairs(
    kind: str, wanted: JSONObject, found: JSONObject
) -> Iterator[tuple[str, JSONObject, JSONObject]]:
    """Yield where, wanted and found of each webhook that is in both."""
    present = {webhook.get("name"): webhook for webhook in found.get("webhooks") or ()}
    for webhook in wanted["webhooks"]:
        if webhook["name"] in present:
            yield f"{kind}, webhook {webhook['name']}", webhook, present[webhook["name"]]


def _completeness(wanted: dict[str, JSONObject], present: dict[str, JSONObject]) -> Iterator[Line]:
    for kind, configuration in present.items():
        names = {webhook["name"] for webhook in configuration.get("webhooks") or ()}
        asked = [webhook["name"] for webhook in wanted[kind]["webhooks"]]
        missing = [name for name in asked if name not in names]
        further = sorted(name for name in names if is_ours(name) and name not in asked)
        if missing:
            yield fail(kind, f"lacks {', '.join(missing)}", _REPAIR)
        elif further:
            yield warn(kind, f"has {', '.join(further)}, which the policy does not want", _REPAIR)
        else:
            count = len(wanted[kind]["webhooks"])
            yield ok(kind, f"has {'its webhook' if count == 1 else f'all {count} webhooks'}")


def _is_known(field: str, found: Installation) -> bool:
    """Tell whether it is known what a field should be.

    If the Deployment's command line registers nothing, the configurations are those that
    ``gpufence manifests`` printed, with unknown options.
    """
    registers = found.deployed is not None and found.deployed.registers
    return registers or field not in ("namespaceSelector", "timeoutSeconds")


def _field(field: str, pairs: list[tuple[str, JSONObject, JSONObject]], known: bool) -> Line:
    problems = []
    for where, wanted, found in pairs:
        target, value = wanted[field], found.get(field)
        if field == "clientConfig":
            value = {key: each for key, each in (value or {}).items() if key != "caBundle"}
        if target != value:
            problems.append(f"{where}: {_difference(field, target, value)}")
    if not problems:
        return ok(field, "as policy and release ask for")
    if not known:
        return warn(field, "; ".join(problems), "See whether gpufence manifests was run so")
    if field == "timeoutSeconds":
        return warn(field, "; ".join(problems), _REPAIR)
    return fail(field, "; ".join(problems), _REPAIR)


def _difference(field: str, wanted: object, found: object) -> str:
    if field == "namespaceSelector":
        return _namespaces(wanted, found)
    if isinstance(wanted, str | int):
        return f"is {found}, and should be {wanted}"
    meaning = _MEANING.get(field)
    return f"differs: {meaning}" if meaning else "differs"


def _namespaces(wanted: object, found: object) -> str:
    before, now = _excluded(wanted), _excluded(found)
    if before is None or now is None:
        return "selects namespaces otherwise than by leaving some out"
    parts = []
    if added := sorted(now - before):
        parts.append(f"leaves out {', '.join(added)}, where the fence is open")
    if lacking := sorted(before - now):
        parts.append(f"does not leave out {', '.join(lacking)}")
    return "; ".join(parts) or "differs"


def _excluded(selector: object) -> frozenset[str] | None:
    """Return the namespaces that a selector leaves out; None for any other selector."""
    match selector:
        case {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}], **rest}:
            return frozenset(values) if key == NAMESPACE_LABEL and not rest else None
    return None

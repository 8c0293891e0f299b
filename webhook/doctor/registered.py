"""Whether the webhook configurations exist, and match the policy and the release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from policies.kubernetes.objects import JSONObject
from webhook.cel.scope import NAMESPACE_LABEL
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.registration.configurations import Registration, configurations
from webhook.registration.drift import is_own
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
    "matchConditions": "API servers do not call gpufence for objects that do not match",
    "objectSelector": "API servers do not call gpufence for objects that do not match",
    "rules": "API servers call gpufence only for these resources",
    "reinvocationPolicy": "gpufence does not see what later webhooks add",
}
_REPAIR = (
    "Wait some seconds: registering replicas repair it. Then check their logs, and "
    "metadata.managedFields for other writers"
)


def check(installed: Installation) -> Iterator[Line]:
    """Yield whether each configuration exists, and a line for each field that it must have."""
    present = {}
    for kind, configuration in installed.configurations.items():
        if kind in installed.forbidden:
            yield skip(kind, f"cannot read it: {installed.forbidden[kind]}")
        elif configuration is None:
            yield fail(kind, f"{kind} {installed.name} does not exist", _why_missing(installed))
        else:
            present[kind] = configuration
    if not present:
        return
    if installed.policy is None:
        yield skip(
            "configurations",
            "the policy is unknown, and the configurations depend on it",
            "Fix the policy",
        )
        return
    registration = expected_registration(installed)
    if registration is None:
        yield skip("configurations", "the address of gpufence is unknown")
        return
    desired = {
        configuration["kind"]: configuration
        for configuration in configurations(installed.policy, registration)
    }
    pairs = [pair for kind in present for pair in _pairs(kind, desired[kind], present[kind])]
    yield from _completeness(desired, present)
    for field in _FIELDS:
        of_field = [pair for pair in pairs if field in pair[1]]
        yield _field(field, of_field, _is_known(field, installed))


def expected_registration(installed: Installation) -> Registration | None:
    """Return the expected registration, without the caBundle.

    Without a Deployment, options that only its command line has are taken from the configurations.
    """
    if installed.deployed is not None and installed.deployed.registration.is_addressed:
        deployed = installed.deployed.registration
        excluded = deployed.excluded_namespaces | installed.other_releases
        return replace(deployed, ca_bundle="", excluded_namespaces=excluded)
    address = installed.address
    if address is None:
        return None
    timeouts = {
        webhook.get("timeoutSeconds")
        for configuration in installed.configurations.values()
        for webhook in (configuration or {}).get("webhooks") or ()
    }
    return replace(
        address,
        timeout_seconds=min(filter(None, timeouts), default=3),
        excluded_namespaces=frozenset({address.service[0]} if address.service else ()),
    )


def _why_missing(installed: Installation) -> str:
    annotations = ((installed.lease or {}).get("metadata") or {}).get("annotations") or {}
    if since := annotations.get(PAUSED):
        return f"Run gpufence unregister --undo: gpufence was unregistered at {since}"
    if installed.deployed is not None and not installed.deployed.registers:
        return "Apply the output of gpufence manifests: this release does not register itself"
    return "Check the logs of the replicas for the reason"


def _pairs(
    kind: str, desired: JSONObject, live: JSONObject
) -> Iterator[tuple[str, JSONObject, JSONObject]]:
    """Yield path, wanted and found webhook for each webhook that is in both."""
    present = {webhook.get("name"): webhook for webhook in live.get("webhooks") or ()}
    for webhook in desired["webhooks"]:
        if webhook["name"] in present:
            yield f"{kind}, webhook {webhook['name']}", webhook, present[webhook["name"]]


def _completeness(desired: dict[str, JSONObject], present: dict[str, JSONObject]) -> Iterator[Line]:
    for kind, configuration in present.items():
        names = {webhook["name"] for webhook in configuration.get("webhooks") or ()}
        expected = [webhook["name"] for webhook in desired[kind]["webhooks"]]
        missing = [name for name in expected if name not in names]
        further = sorted(name for name in names if is_own(name) and name not in expected)
        if missing:
            yield fail(kind, f"lacks the webhooks {', '.join(missing)}", _REPAIR)
        elif further:
            yield warn(
                kind,
                f"has the webhooks {', '.join(further)}, which the policy does not need",
                _REPAIR,
            )
        else:
            count = len(desired[kind]["webhooks"])
            yield ok(kind, f"has {'its webhook' if count == 1 else f'all {count} webhooks'}")


def _is_known(field: str, installed: Installation) -> bool:
    """Return whether the expected value of a field is known.

    Without registration, the configurations come from ``gpufence manifests`` with unknown options.
    """
    registers = installed.deployed is not None and installed.deployed.registers
    return registers or field not in ("namespaceSelector", "timeoutSeconds")


def _field(field: str, pairs: list[tuple[str, JSONObject, JSONObject]], known: bool) -> Line:
    problems = []
    for where, desired, live in pairs:
        target, value = desired[field], live.get(field)
        if field == "clientConfig":
            value = {key: item for key, item in (value or {}).items() if key != "caBundle"}
        if target != value:
            problems.append(f"{where}: {_difference(field, target, value)}")
    if not problems:
        return ok(field, "matches the policy and the release")
    if not known:
        return warn(field, "; ".join(problems), "Check the options of gpufence manifests")
    if field == "timeoutSeconds":
        return warn(field, "; ".join(problems), _REPAIR)
    return fail(field, "; ".join(problems), _REPAIR)


def _difference(field: str, desired: object, live: object) -> str:
    if field == "namespaceSelector":
        return _namespaces(desired, live)
    if isinstance(desired, str | int):
        return f"is {live}, but must be {desired}"
    meaning = _MEANING.get(field)
    return f"does not match the policy: {meaning}" if meaning else "does not match the policy"


def _namespaces(desired: object, live: object) -> str:
    before, now = _excluded(desired), _excluded(live)
    if before is None or now is None:
        return "is not a list of excluded namespaces"
    parts = []
    if added := sorted(now - before):
        parts.append(f"excludes {', '.join(added)}, where gpufence therefore has no effect")
    if missing := sorted(before - now):
        parts.append(f"does not exclude {', '.join(missing)}")
    return "; ".join(parts) or "does not match the policy"


def _excluded(selector: object) -> frozenset[str] | None:
    """Return the namespaces that a selector excludes; None for any other selector."""
    match selector:
        case {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}], **rest}:
            return frozenset(values) if key == NAMESPACE_LABEL and not rest else None
    return None

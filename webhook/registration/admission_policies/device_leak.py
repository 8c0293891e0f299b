"""The rule device-leak in CEL."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy
from policies.rules.check_device_leak import (
    NO_DEVICES,
    REMEDIATION,
    VISIBLE_DEVICES,
    VOLUME_REMEDIATION,
)
from webhook.registration.admission_policies.cel import (
    Variable,
    any_of,
    containers,
    listed,
    may_be_device,
    names,
    requests_resource,
    text,
)

# A path of single slashes and no dots, or one that normalizes to it. The API server rejects "..".
_DEVICE_PATH = r"^(\.?/)*dev/(\.?/)*(nvidia[^/]*|dri|kfd)(/.*)?$"


def concerns(spec: str, _policy: Policy) -> str:
    """Return CEL that holds for every Pod spec in which the rule may find something."""
    shown = f"c, {listed('c', 'env')}.exists(e, {_opens('e')})"
    return any_of(
        f"{containers(spec)}.exists({shown})",
        f"{listed(spec, 'ephemeralContainers')}.exists({shown})",
        f"{listed(spec, 'volumes')}.exists(v, {_is_device_file('v')})",
    )


def variables(path: str, policy: Policy, _kinds: frozenset[str]) -> Iterator[Variable]:
    """Yield the variable of the rule, which has the findings of each of ``specs``.

    ``path`` is where the Pod's ``spec`` stands in the object.
    """
    # The last of several variables of one name counts.
    named = f"{listed('c', 'env')}.filter(e, e.name == {text(VISIBLE_DEVICES)})"
    opens = f"[{named}].exists(l, size(l) > 0 && [l[size(l) - 1]].exists(e, {_opens('e')}))"
    holds = [requests_resource("c", may_be_device(policy))]
    if policy.pool_of_class:
        holds.append("size(c.?resources.?claims.orValue([])) > 0")
    leaking = f"c, !{any_of(*holds)} && {opens}"
    found = [
        f"{listed('s', field)}.filter({leaking}).map(c, {_shown(f'{path}.{field}')})"
        for field in ("initContainers", "containers", "ephemeralContainers")
    ]
    found.append(
        f"{listed('s', 'volumes')}.filter(v, {_is_device_file('v')})"
        f".map(v, {_mounted(f'{path}.volumes')})"
    )
    yield "leak", f"variables.specs.map(s, {' + '.join(found)})"


def _shown(path: str) -> str:
    """Return CEL for the sentence about a container ``c`` in the list at ``path``."""
    before = f"a container without a device request makes GPUs visible: {path}["
    after = (
        f"] sets {VISIBLE_DEVICES} and requests no device; accepted values are void, none and the "
        f"empty string. {REMEDIATION.format(VISIBLE_DEVICES)}"
    )
    return f"{text(before)} + c.name + {text(after)}"


def _mounted(path: str) -> str:
    """Return CEL for the sentence about a volume ``v`` in the list at ``path``."""
    before = f"a volume mounts device files of the node: {path}["
    after = f", whichever device the scheduler assigns. {VOLUME_REMEDIATION}"
    return f"{text(before)} + v.name + {text('] mounts ')} + v.hostPath.path + {text(after)}"


def _opens(e: str) -> str:
    """Return CEL that holds for a variable that shows devices to its container."""
    value = f'{e}.?value.orValue("")'
    return (
        f"{e}.name == {text(VISIBLE_DEVICES)} && "
        f"(has({e}.valueFrom) || !({value} in {names(NO_DEVICES)}))"
    )


def _is_device_file(v: str) -> str:
    return f"has({v}.hostPath) && {v}.hostPath.path.matches({text(_DEVICE_PATH)})"

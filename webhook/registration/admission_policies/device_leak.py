"""The rule device-leak in CEL."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy
from policies.rules.check_device_leak import (
    NO_DEVICES,
    REMEDIATION,
    VOLUME_REMEDIATION,
    device_files,
    visible_devices_variables,
)
from webhook.registration.admission_policies.cel import (
    Variable,
    any_of,
    containers,
    listed,
    may_be_device,
    may_request_by_annotation,
    names,
    requests_resource,
    text,
)


def concerns(spec: str, policy: Policy) -> str:
    """Return CEL that holds for every Pod spec in which the rule may find something."""
    opens = any_of(*(_opens("e", name) for name in visible_devices_variables(policy)))
    opened = f"c, {listed('c', 'env')}.exists(e, {opens})"
    return any_of(
        f"{containers(spec)}.exists({opened})",
        f"{listed(spec, 'ephemeralContainers')}.exists({opened})",
        f"{listed(spec, 'volumes')}.exists(v, {_is_device_file('v', policy)})",
    )


def variables(path: str, policy: Policy, _kinds: frozenset[str]) -> Iterator[Variable]:
    """Yield the variable of the rule, which has the findings of each of ``specs``.

    ``path`` is where the Pod's ``spec`` stands in the object.
    """
    holds = [requests_resource("c", may_be_device(policy))]
    if policy.pools_of_class:
        holds.append("size(c.?resources.?claims.orValue([])) > 0")
    requests = any_of(*holds, *may_request_by_annotation("s", path, policy))
    lists = []
    for name in visible_devices_variables(policy):
        # The last of several variables of one name counts.
        named = f"{listed('c', 'env')}.filter(e, e.name == {text(name)})"
        last = (
            f"[{named}].exists(l, size(l) > 0 && [l[size(l) - 1]].exists(e, {_opens('e', name)}))"
        )
        lists += [
            f"{listed('s', field)}.filter(c, !{requests} && {last})"
            f".map(c, {_leak_sentence(f'{path}.{field}', name)})"
            for field in ("initContainers", "containers", "ephemeralContainers")
        ]
    lists.append(
        f"{listed('s', 'volumes')}.filter(v, {_is_device_file('v', policy)})"
        f".map(v, {_mount_sentence(f'{path}.volumes')})"
    )
    yield "leak", f"variables.specs.map(s, {' + '.join(lists)})"


def _leak_sentence(path: str, name: str) -> str:
    """Return CEL for the sentence about a container ``c`` in the list at ``path``."""
    before = f"a container without a device request makes GPUs visible: {path}["
    after = (
        f"] sets {name} and requests no device; accepted values are void, none and the empty "
        f"string. {REMEDIATION.format(name)}"
    )
    return f"{text(before)} + c.name + {text(after)}"


def _mount_sentence(path: str) -> str:
    """Return CEL for the sentence about a volume ``v`` in the list at ``path``."""
    before = f"a volume mounts device files of the node: {path}["
    after = f", whichever device the scheduler assigns. {VOLUME_REMEDIATION}"
    return f"{text(before)} + v.name + {text('] mounts ')} + v.hostPath.path + {text(after)}"


def _opens(e: str, name: str) -> str:
    """Return CEL that holds for a variable of this name that shows devices to its container."""
    value = f'{e}.?value.orValue("")'
    return f"{e}.name == {text(name)} && (has({e}.valueFrom) || !({value} in {names(NO_DEVICES)}))"


def _is_device_file(v: str, policy: Policy) -> str:
    # A path of single slashes and no dots, or one that normalizes to it. The API server rejects
    # "..". A name in char does not begin with a dot: it could stand for char itself.
    path = rf"^(\.?/)*dev/(\.?/)*({device_files(policy)}|char/(\.?/)*[^/.][^/]*)(/.*)?$"
    return f"has({v}.hostPath) && {v}.hostPath.path.matches({text(path)})"

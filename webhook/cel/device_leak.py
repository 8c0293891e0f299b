"""The rule device-leak in CEL."""

from __future__ import annotations

from collections.abc import Iterator

from policies.device_injection import NO_DEVICES
from policies.policy import Policy
from policies.rules.check_device_leak import (
    ACCEPTED_VALUES,
    MOUNTS_FILES,
    NO_REQUEST,
    ONLY_CLAIMS,
    REMEDIATION,
    SHOWS_GPUS,
    VOLUME_REMEDIATION,
    device_files,
    visible_devices_variables,
)
from webhook.cel.pods import (
    findings,
    has_short,
    listed,
    requests_by_annotation,
    requests_device,
    some,
    some_container,
)
from webhook.cel.text import (
    Variable,
    all_of,
    any_of,
    call,
    commented,
    indented,
    sentence,
    text,
)

SUMMARY = (
    "containers that request no device and set a variable that makes GPUs visible, and volumes "
    "with device files of the node"
)
_PLAIN_NAMES = "^[!-#%-~]+$"
"""Printable ASCII characters without a space and the dollar sign."""

_CLOSING_NAMES = rf"(^|,)({'|'.join(sorted(NO_DEVICES))})(,|$)"

_LISTS = ("initContainers", "containers", "ephemeralContainers")


def concerns(policy: Policy) -> str:
    """Return CEL that holds for every ``pod`` in which the rule may find something."""
    opens = any_of(
        *(
            f"(e.name == {text(name)} && {_opens('e')})"
            for name in visible_devices_variables(policy)
        )
    )
    opened = some("c", "env", "e", opens)
    return any_of(
        some_container(opened, debug=opened),
        some("pod.spec", "volumes", "v", _is_device_file(policy)),
    )


def variables(policy: Policy) -> Iterator[Variable]:
    """Yield the variables of the rule; ``findings`` has the sentences about each of ``pods``."""
    short = [has_short("pod.spec", field) for field in (*_LISTS, "volumes")]
    env = has_short("c", "env")
    short += [call(listed("pod.spec", field), "all", "c", env) for field in _LISTS]
    yield (
        "isShort",
        commented(
            "Whether all lists are short. Longer ones are left to the webhook.",
            call("variables.pods", "all", "pod", all_of(*short)),
        ),
    )
    entries = "\n+ ".join(
        f'{listed("pod.spec", field)}.map(c, {{"list": dyn({text(field)}), "c": dyn(c)}})'
        for field in _LISTS
    )
    has_device = call("[entry.c]", "exists", "c", requests_device(policy))
    lacking = call(f"({indented(entries).strip()})", "filter", "entry", f"!{has_device}")
    if annotated := requests_by_annotation(policy, "variables.pods[0].metadata"):
        lacking = f"({any_of(*annotated)}\n  ? []\n  : {indented(lacking).strip()})"
    yield (
        "containers",
        commented(
            "The containers of each of pods that request no device, and the list of each.",
            call("variables.pods", "map", "pod", lacking),
        ),
    )
    found = []
    for name in visible_devices_variables(policy):
        found.append(f"variables.show_{name}[i]")
        yield f"show_{name}", _showing(name)
    found.append("variables.deviceFiles[i]")
    yield "deviceFiles", _device_files(policy)
    yield "findings", findings(" + ".join(found))


def _showing(name: str) -> str:
    """Return CEL for the sentences about containers with a variable."""
    named = f"{listed('entry.c', 'env')}.filter(e, e.name == {text(name)})"
    last = call(f"[{named}]", "exists", "l", f"size(l) > 0 && {_opens('l[size(l) - 1]')}")
    before = f"{SHOWS_GPUS}: "
    has_claims = "size(entry.c.?resources.?claims.orValue([])) > 0"
    said = (
        f"{text(before)}\n"
        f"+ variables.path + {text('.')} + entry.list + {text('[')} + entry.c.name\n"
        f"+ {text(f'] sets {name} and ')}\n"
        f"+ ({has_claims} ? {text(ONLY_CLAIMS)} : {text(NO_REQUEST)})\n"
        f"+ {sentence(f'; {ACCEPTED_VALUES}. {REMEDIATION.format(name)}')}"
    )
    return commented(
        f"The last of several variables named {name} counts.",
        call("variables.containers", "map", "entries", _said("entries", "entry", last, said)),
    )


def _device_files(policy: Policy) -> str:
    """Return CEL for the sentences about volumes with device files."""
    said = (
        f"{text(f'{MOUNTS_FILES}: ')}\n"
        f"+ variables.path + {text('.volumes[')} + v.name\n"
        f"+ {text('] mounts ')} + v.hostPath.path\n"
        f"+ {sentence(f', whichever device the scheduler assigns. {VOLUME_REMEDIATION}')}"
    )
    volumes = listed("pod.spec", "volumes")
    return call("variables.pods", "map", "pod", _said(volumes, "v", _is_device_file(policy), said))


def _said(entries: str, item: str, condition: str, said: str) -> str:
    """Return CEL for a sentence about each entry that meets a condition."""
    found = call(entries, "filter", item, condition)
    return f"{found}.map({item},\n{indented(said)})"


def _opens(e: str) -> str:
    """Return CEL that holds for a variable that surely shows devices to its container.

    Values with spaces, references to other variables or several special names are left to the
    webhook.
    """
    value = f'{e}.?value.orValue("")'
    plain = f"{value}.matches({text(_PLAIN_NAMES)}) && !{value}.matches({text(_CLOSING_NAMES)})"
    return f"(has({e}.valueFrom) || {plain})"


def _is_device_file(policy: Policy) -> str:
    # A path that ends with a device file, or one that normalizes to it. The API server rejects
    # "..". A name in char does not begin with a dot: it could stand for char itself.
    path = rf"^(.*/)?dev/(\.?/)*({device_files(policy)}|char/(\.?/)*[^/.][^/]*)(/.*)?$"
    return f"has(v.hostPath) && v.hostPath.path.matches({text(path)})"

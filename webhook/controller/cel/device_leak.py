"""The rule device-leak in CEL."""

from __future__ import annotations

from collections.abc import Iterator

from policies.device_injection import NO_DEVICES
from policies.policy import Policy
from policies.rules.check_device_leak import (
    IN_PLACE,
    ONLY_CLAIMS,
    SHOWS_GPUS,
    device_files,
    variable_remediation,
    visible_devices_variables,
    volume_remediation,
)
from webhook.controller.cel.pods import (
    findings,
    has_short,
    listed,
    requests_by_annotation,
    requests_device,
    short_lists,
    some,
    some_container,
)
from webhook.controller.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    indented,
    joined,
    let,
    quoted,
    sentence,
    text,
)

SUMMARY = (
    "containers that request no device and set a variable that makes GPUs visible, and volumes "
    "with device files of the node"
)
FINDINGS = "leaks"

_PLAIN_NAMES = "^[!-#%-~]+$"
"""Printable ASCII characters without a space and the dollar sign."""

_CLOSING_NAMES = rf"(^|,)({'|'.join(sorted(NO_DEVICES))})(,|$)"

_LISTS = ("initContainers", "containers", "ephemeralContainers")


def concerns(policy: Policy) -> str:
    """Return CEL that holds for every ``pod`` in which the rule may find something."""
    opens = any_of(
        *(
            all_of(f"e.name == {text(name)}", _opens("e"))
            for name in visible_devices_variables(policy)
        )
    )
    opened = some("c", "env", "e", opens)
    return any_of(
        some_container(opened, debug=opened),
        some("pod.spec", "volumes", "v", _is_device_file(policy)),
    )


def variables(policy: Policy) -> Iterator[Variable]:
    """Yield the variables of the rule; the last one has the sentences about each of ``pods``."""
    short = [has_short("pod.spec", field) for field in (*_LISTS, "volumes")]
    env = has_short("c", "env")
    short += [call(listed("pod.spec", field), "all", "c", env) for field in _LISTS]
    yield short_lists("hasShortLists", "pod", "variables.pods", all_of(*short))
    entries = joined(
        *(
            f'{listed("pod.spec", field)}.map(c, {{"list": dyn({text(field)}), "c": dyn(c)}})'
            for field in _LISTS
        )
    )
    has_device = let("c", "entry.c", requests_device(policy))
    lacking = call(f"({below(entries)})", "filter", "entry", f"!{has_device}")
    annotated = requests_by_annotation(policy, "variables.pods[0].metadata")
    if annotated != "false":
        lacking = f"({annotated}\n  ? []\n  : {below(lacking)})"
    yield Variable(
        "containers",
        "The containers of each of pods that request no device, and the list of each.",
        call("variables.pods", "map", "pod", lacking),
    )
    lists = ",\n  ".join(
        f"{text(field)}: {listed('variables.pods[0].spec', field)}.map(c, c.name)"
        for field in _LISTS
    )
    yield Variable("names", "The names of the containers, in each list.", f"{{\n  {lists}\n}}")
    found = []
    for name in visible_devices_variables(policy):
        found.append(f"variables.show_{name}[i]")
        yield _showing(name, policy)
    found.append("variables.deviceFiles[i]")
    yield Variable("deviceFiles", "", _device_files(policy))
    yield findings("leakSentences", " + ".join(found), "hasShortLists")


def _showing(name: str, policy: Policy) -> Variable:
    """Return the variable with the sentences about containers with a variable."""
    env = listed("entry.c", "env")
    named = f"{env}.filter(e, e.name == {text(name)})"
    last = let("l", named, all_of("size(l) > 0", _opens("l[size(l) - 1]")))
    entry = "entry.c.env[n]"
    value = f'{entry}.?value.orValue("")'
    shown = f'(has({entry}.valueFrom) ? "a value from valueFrom" : {quoted(value)})'
    said = joined(
        "variables.path",
        '"." + entry.list',
        '"[" + string(variables.names[entry.list].indexOf(entry.c.name))',
        '"].env[" + string(n)',
        f'"]: container " + {quoted("entry.c.name")}',
        f"{text(f' sets {name} to ')} + {shown}",
        f"(size(entry.c.?resources.?claims.orValue([])) > 0\n"
        f"  ? {sentence(f', {ONLY_CLAIMS}. Remove {name}')}\n"
        f"  : {sentence(f', {SHOWS_GPUS}. {variable_remediation(name, policy)}')})",
    )
    index = f"[{env}.map(e, e.name).lastIndexOf({text(name)})]"
    found = call("entries", "filter", "entry", last)
    return Variable(
        f"show_{name}",
        f"The last of several variables named {name} counts.",
        call("variables.containers", "map", "entries", _mapped(found, "entry", index, said)),
    )


def _device_files(policy: Policy) -> str:
    """Return CEL for the sentences about volumes with device files."""
    volumes = listed("pod.spec", "volumes")
    said = joined(
        "variables.path",
        '".volumes[" + string(n)',
        f'"].hostPath.path: volume " + {quoted("v.name")}',
        '" mounts " + v.hostPath.path',
        sentence(f", {IN_PLACE}. {volume_remediation(policy)}"),
    )
    index = f"[{volumes}.map(o, o.name).indexOf(v.name)]"
    found = call(volumes, "filter", "v", _is_device_file(policy))
    return call("variables.pods", "map", "pod", _mapped(found, "v", index, said))


def _mapped(found: str, item: str, index: str, said: str) -> str:
    """Return CEL for the sentence about each item that was found, with its index ``n``."""
    with_index = call(index, "map", "n", said)
    return f"{found}.map({item},\n{indented(with_index)}[0])"


def _opens(e: str) -> str:
    """Return CEL that holds for a variable that surely shows devices to its container.

    Values with spaces, references to other variables or several special names are left to the
    webhook.
    """
    value = f'{e}.?value.orValue("")'
    plain = f"{value}.matches({text(_PLAIN_NAMES)})"
    closing = f"{value}.matches({text(_CLOSING_NAMES)})"
    return any_of(f"has({e}.valueFrom)", all_of(plain, f"!{closing}"))


def _is_device_file(policy: Policy) -> str:
    # A path that ends with a device file, or one that normalizes to it. The API server rejects
    # "..". A name in char does not begin with a dot: it could stand for char itself.
    path = rf"^(.*/)?dev/(\.?/)*({device_files(policy)}|char/(\.?/)*[^/.][^/]*)(/.*)?$"
    return f"has(v.hostPath) && v.hostPath.path.matches({text(path)})"

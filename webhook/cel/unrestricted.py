"""The rule unrestricted-gpu-pod in CEL: settings that no profile of the policy accepts.

It is compiled where the API server mutates GPU Pods, because those that it does not mutate need a
verdict without a replica as well. What it says is what the engine says of a Pod with this setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import Level, violations
from policies.kubernetes.pod_security.privileges import (
    DEFAULT_CAPABILITIES,
    RESTRICTED_CAPABILITIES,
)
from policies.kubernetes.workload import convert
from policies.policy import Policy
from policies.rules.check_unrestricted_gpu_pod import ID
from webhook.cel.covered import all_resources, some_resource
from webhook.cel.pods import containers, findings, has_short, some_container
from webhook.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    is_in,
    joined,
    names,
    sentence,
    variable,
)

SUMMARY = "GPU Pods with privileges that their Pod Security profile rejects"
SENTENCES = "privilegeSentences"
FINDINGS = "privileges"

_CONTAINER, _CAPABILITY = "CONTAINER", "CAPABILITY"
"""Names in the examples, in whose place a sentence has those of the object."""
_HARDENED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_COMPLETE = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_LISTS = ("initContainers", "containers")


class _Setting(NamedTuple):
    """A setting that a profile rejects: CEL about a security context ``s`` or the ``pod``."""

    condition: str
    example: JSONObject


def _settings(level: Level) -> Iterator[_Setting]:
    """Yield the settings of containers that the level rejects."""
    yield _Setting("s.?privileged.orValue(false)", {"privileged": True})
    yield _Setting(
        f"size({_added(level)}) > 0", {"capabilities": {"add": [_CAPABILITY], "drop": ["ALL"]}}
    )
    if level == "restricted":
        example = {"allowPrivilegeEscalation": True}
        yield _Setting("s.?allowPrivilegeEscalation.orValue(false)", example)
        yield _Setting("!s.?runAsNonRoot.orValue(true)", {"runAsNonRoot": False})
        yield _Setting("s.?runAsUser.orValue(1) == 0", {"runAsUser": 0})


def _settings_of_pods(level: Level) -> Iterator[_Setting]:
    """Yield the settings of the Pod itself that the level rejects, whatever its containers set."""
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        yield _Setting(f"pod.spec.?{field}.orValue(false)", {field: True})
    if level == "restricted":
        context = "pod.spec.?securityContext"
        example = {"securityContext": {**_COMPLETE, "runAsNonRoot": False}}
        yield _Setting(f"!{context}.?runAsNonRoot.orValue(true)", example)
        example = {"securityContext": {**_COMPLETE, "runAsUser": 0}}
        yield _Setting(f"{context}.?runAsUser.orValue(1) == 0", example)


def _added(level: Level) -> str:
    """Return CEL for the capabilities of ``s`` that the level rejects."""
    accepted = RESTRICTED_CAPABILITIES if level == "restricted" else DEFAULT_CAPABILITIES
    return f"s.?capabilities.?add.orValue([]).filter(k, !(k in {names(accepted)}))"


def _level(policy: Policy) -> Level | None:
    """Return the weakest level that the policy gives a Pod; None if one needs to meet none."""
    own = [policy.hardening, *(pool.hardening for pool in policy.pools)]
    own += [actions.hardening for actions in policy.action_sets]
    levels = {hardening.level for hardening in own if hardening is not None}
    if "off" in levels:
        return None
    return "baseline" if "baseline" in levels else "restricted"


def is_denied(policy: Policy) -> str:
    """Return CEL that holds for a ``pod`` that is denied in all namespaces, by whichever line."""
    enforced = all(actions[ID] == "enforce" for actions in policy.action_sets)
    return concerns(policy) if enforced and not policy.exceptions else "false"


def concerns(policy: Policy) -> str:
    """Return CEL that holds for every ``pod`` in which the rule may find something."""
    level = _level(policy)
    if level is None:
        return "false"
    of_pod = (setting.condition for setting in _settings_of_pods(level))
    rejected = any_of(*(setting.condition for setting in _settings(level)))
    own = all_of(
        "has(c.securityContext)", call("[dyn(c.securityContext)]", "exists", "s", rejected)
    )
    return all_of(_requests_device(policy), any_of(*of_pod, some_container(own)))


def _requests_device(policy: Policy) -> str:
    """Return CEL that holds for a ``pod`` that certainly requests a device, and runs on Linux.

    In a user namespace, the profiles accept more.
    """
    requested = all_of(is_in("k", all_resources(policy)), 'string(c.resources[side][k]) != "0"')
    return all_of(
        'pod.spec.?os.?name.orValue("linux") == "linux"',
        "pod.spec.?hostUsers.orValue(true)",
        some_container(some_resource(requested)),
    )


def variables(policy: Policy) -> Iterator[Variable]:
    """Yield the variables of the rule; ``SENTENCES`` has those about each of ``pods``."""
    level = _level(policy) or "baseline"
    short = [has_short("pod.spec", field) for field in _LISTS]
    yield variable(
        "hasShortContainers",
        "Whether all lists are short. Longer ones are left to the webhook.",
        call("variables.pods", "all", "pod", all_of(*short)),
    )
    said = []
    for condition, example in _settings_of_pods(level):
        shared = joined("variables.path", _said(example))
        said.append(f"({condition}\n  ? [{below(shared)}]\n  : [])")
    said += [_of_containers(each, level) for each in _settings(level)]
    found = f"({below(_requests_device(policy))}\n  ? {below(joined(*said))}\n  : [])"
    yield variable(
        "privilegesOfPods",
        "What each of pods sets that its Pod Security profile rejects.",
        call("variables.pods", "map", "pod", found),
    )
    yield findings(SENTENCES, "variables.privilegesOfPods[i]", "hasShortContainers")


def _of_containers(setting: _Setting, level: Level) -> str:
    """Return CEL for the sentences about the containers with the setting."""
    rejected = call("[dyn(c.securityContext)]", "exists", "s", setting.condition)
    found = call(containers(), "filter", "c", all_of("has(c.securityContext)", rejected))
    capability = f"[dyn(c.securityContext)].map(s, {_added(level)})[0][0]"
    container = {"name": _CONTAINER, "securityContext": {**_HARDENED, **setting.example}}
    said = _said({"containers": [container]}, {_CONTAINER: "c.name", _CAPABILITY: capability})
    return call(found, "map", "c", joined("variables.path", said))


def _said(example: JSONObject, values: Mapping[str, str] = {}) -> str:
    """Return CEL for what the engine says of a Pod with a setting, without the path of the field.

    ``values`` has CEL in place of names of the example.
    """
    pod = Pod(convert({"containers": [], "securityContext": _COMPLETE, **example}, PodSpec))
    [violation] = violations(pod, "restricted", completed=True)
    said = f": {violation.found}. {violation.remediation}"
    parts = re.split(f"({'|'.join(values)})", said) if values else [said]
    return joined(*(values.get(part) or sentence(part) for part in parts if part))

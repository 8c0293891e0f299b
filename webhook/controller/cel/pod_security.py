"""Pod Security in CEL: what a profile rejects, whatever the mutations add.

``may_violate`` holds for every Pod that a profile may reject. The rule unrestricted-gpu-pod is
about settings that it surely rejects. The rule is compiled where the API server mutates GPU Pods,
because those that it does not mutate need a verdict without a replica as well. What it says is what
the engine says of a Pod with this setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import Level, violations
from policies.kubernetes.pod_security.confinement import ACCEPTED_SE_LINUX_TYPES, PROFILES, SYSCTLS
from policies.kubernetes.pod_security.host import VOLUMES
from policies.kubernetes.pod_security.privileges import (
    DEFAULT_CAPABILITIES,
    RESTRICTED_CAPABILITIES,
)
from policies.kubernetes.workload import convert
from policies.policy import Policy
from policies.rules.check_unrestricted_gpu_pod import ID
from webhook.controller.cel.pods import (
    all_resources,
    containers,
    findings,
    has_short,
    requested,
    short_lists,
    some,
    some_container,
    some_resource,
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
)

SUMMARY = "GPU Pods with privileges that their Pod Security profile rejects"
FINDINGS = "privileges"

_CONTAINER, _CAPABILITY = "CONTAINER", "CAPABILITY"
"""Names in the examples, in whose place a sentence has those of the object."""
_HARDENED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_COMPLETE = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_LISTS = ("initContainers", "containers")

_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_PRIVILEGED = "s.?privileged.orValue(false)"
_ESCALATES = "s.?allowPrivilegeEscalation.orValue(false)"
_MAY_BE_ROOT = "!s.?runAsNonRoot.orValue(true)"
_IS_ROOT = "s.?runAsUser.orValue(1) == 0"
"""CEL about a security context ``s``."""
_OUTSIDE = "pod.spec.?hostUsers.orValue(true)"
"""CEL that holds for a ``pod`` outside of a user namespace, where the profiles accept root."""


class _Setting(NamedTuple):
    """A setting that a profile rejects: CEL about a security context ``s`` or the ``pod``."""

    condition: str
    example: JSONObject


def _settings(level: Level) -> Iterator[_Setting]:
    """Yield the settings of containers that the level rejects."""
    yield _Setting(_PRIVILEGED, {"privileged": True})
    yield _Setting(
        f"size({_added(level)}) > 0", {"capabilities": {"add": [_CAPABILITY], "drop": ["ALL"]}}
    )
    if level == "restricted":
        yield _Setting(_ESCALATES, {"allowPrivilegeEscalation": True})
        yield _Setting(all_of(_OUTSIDE, _MAY_BE_ROOT), {"runAsNonRoot": False})
        yield _Setting(all_of(_OUTSIDE, _IS_ROOT), {"runAsUser": 0})


def _settings_of_pods(level: Level) -> Iterator[_Setting]:
    """Yield the settings of the Pod itself that the level rejects, whatever its containers set."""
    for field in _HOST_NAMESPACES:
        yield _Setting(f"pod.spec.?{field}.orValue(false)", {field: True})
    if level == "restricted":
        context = "pod.spec.?securityContext"
        example = {"securityContext": {**_COMPLETE, "runAsNonRoot": False}}
        yield _Setting(all_of(_OUTSIDE, f"!{context}.?runAsNonRoot.orValue(true)"), example)
        example = {"securityContext": {**_COMPLETE, "runAsUser": 0}}
        yield _Setting(all_of(_OUTSIDE, f"{context}.?runAsUser.orValue(1) == 0"), example)


def _is_rejected_capability(level: Level) -> str:
    """Return CEL that holds for a capability ``k`` that the level rejects."""
    accepted = RESTRICTED_CAPABILITIES if level == "restricted" else DEFAULT_CAPABILITIES
    return f"!(k in {names(accepted)})"


def _added(level: Level) -> str:
    """Return CEL for the capabilities of ``s`` that the level rejects."""
    return f"s.?capabilities.?add.orValue([]).filter(k, {_is_rejected_capability(level)})"


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
    own = some_container(_in_context("c", rejected))
    return all_of(_requests_device(policy), any_of(*of_pod, own))


def _in_context(owner: str, condition: str) -> str:
    """Return CEL that holds if the owner has a security context ``s`` with the condition."""
    context = f"{owner}.securityContext"
    return all_of(f"has({context})", let("s", f"dyn({context})", condition))


def _requests_device(policy: Policy) -> str:
    """Return CEL that holds for a ``pod`` that certainly requests a device, and runs on Linux."""
    return all_of(
        'pod.spec.?os.?name.orValue("linux") == "linux"',
        some_container(some_resource(requested(is_in("k", all_resources(policy))))),
    )


def variables(policy: Policy) -> Iterator[Variable]:
    """Yield the variables of the rule; the last one has the sentences about each of ``pods``."""
    level = _level(policy) or "baseline"
    short = [has_short("pod.spec", field) for field in _LISTS]
    yield short_lists("hasShortContainers", "pod", "variables.pods", all_of(*short))
    said = []
    for condition, example in _settings_of_pods(level):
        shared = joined("variables.path", _said(example))
        said.append(f"({condition}\n  ? [{below(shared)}]\n  : [])")
    said += [_of_containers(each, level) for each in _settings(level)]
    found = f"({below(_requests_device(policy))}\n  ? {below(joined(*said))}\n  : [])"
    yield Variable(
        "privilegesOfPods",
        "What each of pods sets that its Pod Security profile rejects.",
        call("variables.pods", "map", "pod", found),
    )
    yield findings("privilegeSentences", "variables.privilegesOfPods[i]", "hasShortContainers")


def _of_containers(setting: _Setting, level: Level) -> str:
    """Return CEL for the sentences about the containers with the setting."""
    found = call(containers(), "filter", "c", _in_context("c", setting.condition))
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


def may_violate(level: Level) -> Iterator[str]:
    """Yield CEL; where all of it is false, the profile accepts the completed ``pod``.

    It also holds for some Pods that the profile accepts: with AppArmor's annotations, a user
    namespace, or Windows.
    """
    yield any_of(
        *(f"pod.spec.?{field}.orValue(false)" for field in _HOST_NAMESPACES),
        "!pod.spec.?hostUsers.orValue(true)",
        'pod.spec.?os.?name.orValue("linux") != "linux"',
    )
    of_both = [*_of_context(level)]
    of_pod, of_container = any_of(*of_both), any_of(*of_both, *_of_container(level))
    yield any_of(
        _in_context("pod.spec", of_pod),
        some_container(_in_context("c", of_container), debug="true"),
    )
    yield some("pod.spec", "securityContext.sysctls", "s", f"!(s.name in {names(SYSCTLS)})")
    annotation = 'k.startsWith("container.apparmor.security.beta.kubernetes.io/")'
    yield some("pod", "metadata.annotations", "k", annotation)
    yield some_container(
        any_of(
            some("c", "ports", "p", "p.?hostPort.orValue(0) != 0"),
            *(_names_host(f"c.?{probe}") for probe in _PROBES),
        )
    )
    source = "has(v.hostPath)"
    if level == "restricted":
        source = negated(any_of(*(f"has(v.{source})" for source in VOLUMES)))
    yield some("pod.spec", "volumes", "v", source)


_PROBES = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle.?postStart",
    "lifecycle.?preStop",
)


def _names_host(handler: str) -> str:
    return any_of(
        *(f'{handler}.?{kind}.?host.orValue("") != ""' for kind in ("httpGet", "tcpSocket"))
    )


def _of_context(level: Level) -> Iterator[str]:
    """Yield CEL that holds for a security context ``s`` that sets what the profile rejects."""
    yield "s.?windowsOptions.?hostProcess.orValue(false)"
    for field in ("seccompProfile", "appArmorProfile"):
        yield f"has(s.{field}) && !(s.{field}.type in {names(PROFILES)})"
    yield 's.?seLinuxOptions.?user.orValue("") + s.?seLinuxOptions.?role.orValue("") != ""'
    yield f'!(s.?seLinuxOptions.?type.orValue("") in {names(ACCEPTED_SE_LINUX_TYPES)})'
    if level == "restricted":
        yield from (_MAY_BE_ROOT, _IS_ROOT)


def _of_container(level: Level) -> Iterator[str]:
    """Yield the same for the fields that only a container's security context has."""
    yield _PRIVILEGED
    yield 's.?procMount.orValue("Default") != "Default"'
    yield some("s", "capabilities.add", "k", _is_rejected_capability(level))
    if level == "restricted":
        yield _ESCALATES

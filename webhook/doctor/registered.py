"""Whether what is registered exists, and matches the policy and the release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from policies.policy import Policy
from policies.reach import unlabeled_pools
from webhook.cel.admission_policies import (
    MUTATING_POLICY_KIND,
    POLICY_KIND,
    admission_policies,
)
from webhook.cel.configurations import Registration, configurations
from webhook.doctor.installation import Installation
from webhook.doctor.line import DoctorLine, fail, ok, skip, warn
from webhook.registration.drift import UNNEEDED, Difference, drift
from webhook.registration.leader_election import paused_since
from webhook.registration.registrar import type_warnings

_POLICIES = "admission policies"
_REPAIR = (
    "Wait some seconds: the leader repairs it. Then check its log, and metadata.managedFields for "
    "other writers"
)
_HARMLESS = frozenset({"timeoutSeconds", UNNEEDED})
_OPTIONS = frozenset({"timeoutSeconds", "namespaceSelector", "metadata"})
"""Fields that follow from the options of ``gpufence manifests``, which the doctor does not know."""


def check(installed: Installation, today: date) -> Iterator[DoctorLine]:
    """Yield a line for each configuration, and for the admission policies."""
    registration = expected_registration(installed)
    if registration is not None and installed.policy is not None:
        left_out = unlabeled_pools(installed.policy, installed.nodes)
        registration = replace(registration, left_out=left_out)
    yield from _configurations(installed, registration)
    yield from _admission_policies(installed, registration, today)


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


def _configurations(
    installed: Installation, registration: Registration | None
) -> Iterator[DoctorLine]:
    desired = (
        {made["kind"]: made for made in configurations(installed.policy, registration)}
        if installed.policy is not None and registration is not None
        else {}
    )
    for kind, live in installed.configurations.items():
        if kind in installed.forbidden:
            yield skip(kind, f"cannot read it: {installed.forbidden[kind]}")
        elif live is None:
            yield fail(kind, f"{kind} {installed.name} does not exist", _why_missing(installed))
        elif kind in desired:
            # With the caBundle that is there: the doctor compares the CAs in it apart.
            differences = drift(desired[kind], live)
            good = f"all {len(desired[kind]['webhooks'])} webhooks match the policy and the release"
            yield _line(kind, good, differences, installed, "gpufence manifests")
        else:
            unknown = "policy" if installed.policy is None else "address of gpufence"
            yield skip(kind, f"the {unknown} is unknown, and it depends on that")


def _admission_policies(
    installed: Installation, registration: Registration | None, today: date
) -> Iterator[DoctorLine]:
    if _POLICIES in installed.forbidden:
        yield skip(_POLICIES, f"cannot list them: {installed.forbidden[_POLICIES]}")
    elif POLICY_KIND not in installed.admission_policies:
        yield warn(
            _POLICIES,
            "the API server does not serve ValidatingAdmissionPolicy v1",
            "Upgrade to Kubernetes 1.30 or newer; until then, only replicas deny Pods",
        )
    elif installed.policy is None or registration is None:
        yield skip(_POLICIES, "the policy or the registration is unknown, and they depend on both")
    else:
        yield _compared(installed, installed.policy, registration, today)
        for warning in type_warnings(installed.admission_policies):
            remediation = "Report an issue with your Kubernetes version"
            yield warn("admission policy types", warning, remediation)


def _compared(
    installed: Installation, policy: Policy, registration: Registration, today: date
) -> DoctorLine:
    live = {
        (kind, name): obj
        for kind, objects in installed.admission_policies.items()
        for name, obj in objects.items()
    }
    enabled = installed.deployed is None or installed.deployed.admission_policies
    if not live and not (installed.registers and enabled):
        problem = "none found; while no replica answers, no API server denies trespassing Pods"
        if installed.registers:
            return warn(_POLICIES, problem, "Set admissionPolicies.enabled in the chart")
        return warn(
            _POLICIES, problem, "Apply the output of gpufence manifests --admission-policies"
        )
    made = admission_policies(policy, registration, today=today) if enabled else ()
    desired = {(obj["kind"], obj["metadata"]["name"]): obj for obj in made}
    differences = []
    if unserved := {kind for kind, _ in desired} - installed.admission_policies.keys():
        return warn(
            _POLICIES,
            f"the API server does not serve {min(unserved)} v1, so it mutates no Pods",
            "Upgrade to Kubernetes 1.36 or newer, or set admissionPolicies.mutate to false in the "
            "chart. Until then, the webhook mutates all GPU Pods",
        )
    for key, obj in desired.items():
        found = drift(obj, live[key]) if key in live else [Difference("", "it does not exist")]
        differences += [Difference(each.field, f"{' '.join(key)}: {each}") for each in found]
    for key in live.keys() - desired:
        differences.append(Difference("", f"{' '.join(key)}: it is not needed"))
    count = sum(kind in (POLICY_KIND, MUTATING_POLICY_KIND) for kind, _ in desired)
    good = f"all {count} and their bindings match the policy"
    differences.sort(key=str)
    return _line(_POLICIES, good, differences, installed, "gpufence manifests --admission-policies")


def _line(
    check: str, good: str, differences: Sequence[Difference], installed: Installation, command: str
) -> DoctorLine:
    """Return the line for an object; ``command`` prints it where no leader writes it."""
    if not differences:
        return ok(check, good)
    problem = "; ".join(map(str, differences))
    fields = {difference.field for difference in differences}
    if not installed.registers and fields <= _HARMLESS | _OPTIONS:
        return warn(check, problem, f"Check the options of {command}")
    remediation = _REPAIR if installed.registers else f"Apply the output of {command}"
    return (warn if fields <= _HARMLESS else fail)(check, problem, remediation)


def _why_missing(installed: Installation) -> str:
    if since := paused_since(installed.lease):
        return f"Run gpufence unregister --undo: gpufence was unregistered at {since}"
    if installed.deployed is not None and not installed.deployed.registers:
        return "Apply the output of gpufence manifests: this release does not register itself"
    return "Check the logs of the replicas for the reason"

"""Whether what is registered exists, and matches the policy and the release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from policies.policy import Policy
from webhook.controller.drift import UNNEEDED, Difference, drift
from webhook.controller.registrar import type_warnings
from webhook.controller.text.objects import (
    POLICY_KIND,
    Registration,
    admission_policies,
    configurations,
)
from webhook.tools.doctor import DoctorLine, fail, ok, skip, warn
from webhook.tools.doctor.installation import Installation

_REPAIR = (
    "Wait some seconds: the controller repairs it. Then check its log, and metadata.managedFields "
    "for other writers"
)
_HARMLESS = frozenset({"timeoutSeconds", UNNEEDED})
_OPTIONS = frozenset({"timeoutSeconds", "namespaceSelector", "metadata"})
"""Fields that follow from the options of ``gpufence manifests``, which the doctor does not know."""


def expected_registration(installed: Installation) -> Registration | None:
    """Return the expected registration, without the caBundle.

    Without a Deployment, options that only its command line has are taken from the configurations.
    """
    address = installed.address
    if address is None:
        return None
    if installed.deployed is not None:
        return replace(address, ca_bundle="")
    timeouts = {
        webhook.get("timeoutSeconds")
        for configuration in installed.configurations.values()
        for webhook in (configuration or {}).get("webhooks") or ()
    }
    return replace(
        address,
        # That of a webhook whose answer changes nothing is 1.
        timeout_seconds=min((t for t in timeouts if t and t > 1), default=3),
        excluded_namespaces=frozenset({address.service[0]} if address.service else ()),
        fence_policy=installed.follows or "",
    )


def configuration(kind: str, installed: Installation) -> Iterator[DoctorLine]:
    """Check one of the webhook configurations."""
    live, registration = installed.configurations.get(kind), expected_registration(installed)
    if live is None:
        yield fail(f"{kind} {installed.name} does not exist", _why_missing(installed))
    elif installed.policy is None or registration is None:
        unknown = "policy" if installed.policy is None else "address of gpufence"
        yield skip(f"the {unknown} is unknown, and it depends on that")
    else:
        # With the caBundle that is there: the doctor compares the CAs in it apart.
        made = {each["kind"]: each for each in configurations(installed.policy, registration)}
        good = f"all {len(made[kind]['webhooks'])} webhooks match the policy and the release"
        yield _line(good, drift(made[kind], live), installed, "gpufence manifests")


def policies(installed: Installation) -> Iterator[DoctorLine]:
    """Check the admission policies and their bindings."""
    registration = expected_registration(installed)
    if POLICY_KIND not in installed.admission_policies:
        yield warn(
            "the API server does not serve ValidatingAdmissionPolicy v1",
            "Upgrade to Kubernetes 1.30 or newer; until then, only replicas deny Pods",
        )
    elif installed.policy is None or registration is None:
        yield skip("the policy or the registration is unknown, and they depend on both")
    else:
        yield _compared(installed, installed.policy, registration)


def types(installed: Installation) -> Iterator[DoctorLine]:
    """Report what the API server's type check of the admission policies warns of."""
    live = installed.admission_policies.get(POLICY_KIND, {}).values()
    for warning in chain.from_iterable(map(type_warnings, live)):
        yield warn(warning, "Report an issue with your Kubernetes version")


def _compared(installed: Installation, policy: Policy, registration: Registration) -> DoctorLine:
    live = {
        (kind, name): obj
        for kind, objects in installed.admission_policies.items()
        for name, obj in objects.items()
    }
    enabled = installed.deployed is None or installed.deployed.admission_policies
    command = "gpufence manifests --admission-policies"
    made = admission_policies(policy, registration, today=installed.now.date())
    if made and not live and not (installed.registers and enabled):
        return warn(
            "none found; while no replica answers, no API server denies trespassing Pods",
            "Set admissionPolicies.enabled in the chart"
            if installed.registers
            else f"Apply the output of {command}",
        )
    desired = {(obj["kind"], obj["metadata"]["name"]): obj for obj in made if enabled}
    differences = []
    for key in {*desired, *live}:
        if key not in live:
            found = [Difference("", "it does not exist")]
        elif key not in desired:
            # A binding without its policy has no effect.
            found = [Difference("", "it is not needed")] if key[0] == POLICY_KIND else []
        else:
            found = drift(desired[key], live[key])
        differences += [Difference(each.field, f"{' '.join(key)}: {each}") for each in found]
    count = sum(kind == POLICY_KIND for kind, _ in desired)
    good = f"all {count} and their bindings match the policy" if count else "none is needed"
    return _line(good, sorted(differences, key=str), installed, command)


def _line(
    good: str, differences: Sequence[Difference], installed: Installation, command: str
) -> DoctorLine:
    """Return the line for an object; ``command`` prints it where no controller writes it."""
    if not differences:
        return ok(good)
    problem = "; ".join(map(str, differences))
    fields = {difference.field for difference in differences}
    if not installed.registers and fields <= _HARMLESS | _OPTIONS:
        return warn(problem, f"Check the options of {command}")
    remediation = _REPAIR if installed.registers else f"Apply the output of {command}"
    return (warn if fields <= _HARMLESS else fail)(problem, remediation)


def _why_missing(installed: Installation) -> str:
    if installed.controller is None:
        return "Apply the output of gpufence manifests: this release has no controller"
    return "Check the log of the controller for the reason"

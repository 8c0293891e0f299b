"""Whether what is registered exists, and matches the policy and the release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from policies.kubernetes.objects import mapping, mappings
from policies.policy import Hardening, Policy
from webhook.controller.drift import UNNEEDED, Difference, drift
from webhook.controller.registrar import POLICY_KINDS, type_warnings
from webhook.controller.text.objects import (
    BINDING_KIND,
    POLICY_KIND,
    Registration,
    admission_policies,
    configurations,
)
from webhook.tools.doctor import DoctorLine, fail, ok, skip, warn
from webhook.tools.doctor.installation import RESTORE, Installation

GUARDS = ("registration-guard", "secret-guard", "namespace-guard")
"""How the names of the admission policies of the chart end, which limit accounts and users."""
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
        existing = ", ".join(installed.live.get(kind, {})) or "none"
        cure = "Apply the output of gpufence manifests: this release has no controller"
        problem = f"{kind} {installed.name} does not exist. Configurations of that kind: {existing}"
        yield fail(problem, installed.repair or cure)
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
    has_any = any(kind == POLICY_KIND for kind, _ in live)
    if made and not has_any and not (installed.registers and enabled):
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
    remediation = installed.repair or f"Apply the output of {command}"
    return (warn if fields <= _HARMLESS else fail)(problem, remediation)


def guards(installed: Installation) -> Iterator[DoctorLine]:
    """Check the admission policies of the chart, which nothing repairs."""
    deployed, labels = installed.deployed, mapping((installed.controller or {}).get("metadata"))
    is_chart = mapping(labels.get("labels")).get("app.kubernetes.io/managed-by") == "Helm"
    if deployed is None or not is_chart or not POLICY_KINDS.keys() <= installed.live.keys():
        return
    wanted = dict(zip(GUARDS, (True, deployed.ca_secret, deployed.admission_policies), strict=True))
    names = [f"{installed.name}-{guard}" for guard, is_wanted in wanted.items() if is_wanted]
    for name in names:
        if problem := _unguarded(installed, name):
            kinds = f"{POLICY_KIND},{BINDING_KIND}"
            cure = f"Run kubectl delete {kinds} {name} --ignore-not-found. {RESTORE}"
            yield fail(f"{name} {problem}, so it denies nothing", cure)
    if not any(_unguarded(installed, name) for name in names):
        yield ok(f"{', '.join(names)} are in effect")


def _unguarded(installed: Installation, name: str) -> str:
    """Return why a guard denies nothing; empty if it does."""
    found, binding = (installed.live[kind].get(name) for kind in (POLICY_KIND, BINDING_KIND))
    for kind, each in ((POLICY_KIND, found), (BINDING_KIND, binding)):
        if each is None:
            return f"has no {kind}"
    spec, bound = mapping(mapping(found).get("spec")), mapping(mapping(binding).get("spec"))
    if spec.get("failurePolicy") != "Fail" or not spec.get("validations"):
        return "fails open, or validates nothing"
    if bound.get("policyName") != name or bound.get("matchResources"):
        return "has a binding for another policy, or for a part of the cluster"
    return "" if "Deny" in bound.get("validationActions", ()) else "has a binding without Deny"


def namespace_guard(installed: Installation) -> Iterator[DoctorLine]:
    """Check that the guard of the chart has the namespaces for which the policy is relaxed."""
    relaxed = relaxed_namespaces(installed.policy) if installed.policy is not None else set()
    guard = installed.live.get(POLICY_KIND, {}).get(f"{installed.name}-namespace-guard")
    spec = mapping(mapping(guard).get("spec"))
    text = " ".join(str(each.get("expression")) for _, each in mappings(spec.get("variables")))
    if unguarded := sorted(name for name in relaxed if f'"{name}"' not in text):
        yield warn(
            f"the policy is relaxed in namespaces {', '.join(unguarded)}, and every user who may "
            "create namespaces may create these",
            "Set policy.overrides and policy.exceptions in the values of the chart as in the "
            "policy, or restrict who may create namespaces",
        )
    elif relaxed:
        yield ok(f"it limits who may create {', '.join(sorted(relaxed))}")


def relaxed_namespaces(policy: Policy) -> set[str]:
    """Return the names and prefixes for which overrides and exceptions relax a policy.

    Without ``*``: who may create any namespace gains nothing by what holds in all of them.
    """
    if policy.mode != "enforce":
        return set()
    names = {name for each in policy.exceptions for name in each.namespaces.patterns}
    for override in policy.overrides:
        hardening = override.hardening or Hardening()
        weaker = [rule for rule, action in override.rules.items() if action != "enforce"]
        if (
            override.mode in ("warn", "audit")
            or hardening.level in ("baseline", "off")
            or hardening.version
            or any(policy.rules[rule] == "enforce" for rule in weaker)
        ):
            names.update(override.namespaces)
    return names - {"*"}

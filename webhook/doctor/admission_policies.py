"""Whether the API server has the ValidatingAdmissionPolicies that follow from the policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from policies.kubernetes.objects import JSONObject
from webhook.cel.admission_policies import (
    POLICY_KIND,
    Target,
    admission_policies,
)
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.doctor.registered import expected_registration
from webhook.registration.second_line import type_warnings

_CHECK = "admission policies"
_REPAIR = (
    "Wait some seconds: the leader repairs them. Then check its log and metadata.managedFields"
)
_APPLY = "Apply the output of gpufence manifests --admission-policies"


def check(installed: Installation, today: date) -> Iterator[Line]:
    """Yield whether the admission policies and bindings match the policy."""
    if _CHECK in installed.forbidden:
        yield skip(_CHECK, f"cannot list them: {installed.forbidden[_CHECK]}")
        return
    present = installed.admission_policies
    if present is None:
        problem = "the API server does not serve ValidatingAdmissionPolicy v1"
        yield warn(
            _CHECK,
            problem,
            "Upgrade to Kubernetes 1.30 or newer; until then, only replicas deny Pods",
        )
        return
    registration = expected_registration(installed)
    if installed.policy is None or registration is None:
        yield skip(
            _CHECK,
            "the policy or the registration is unknown, and the admission policies depend on both",
        )
        return
    registers = installed.deployed is not None and installed.deployed.registers
    enabled = installed.deployed is None or installed.deployed.admission_policies
    by_name = {(kind, name): obj for kind, named in present.items() for name, obj in named.items()}
    if not by_name and not (registers and enabled):
        remediation = "Set admissionPolicies.enabled in the chart" if registers else _APPLY
        problem = "none found; while no replica answers, no API server denies trespassing Pods"
        yield warn(_CHECK, problem, remediation)
        return
    target = Target(
        name=installed.name, excluded_namespaces=registration.excluded_namespaces, today=today
    )
    desired = admission_policies(installed.policy, target) if enabled else ()
    problems = _problems(desired, by_name, known=registers)
    if problems:
        yield fail(_CHECK, "; ".join(problems), _REPAIR if registers else _APPLY)
    else:
        count = sum(obj["kind"] == POLICY_KIND for obj in desired)
        yield ok(_CHECK, f"all {count} and their bindings match the policy")
    for warning in type_warnings(present[POLICY_KIND].values()):
        yield warn(
            "admission policy types", warning, "Report an issue with your Kubernetes version"
        )


def _problems(
    desired: tuple[JSONObject, ...], live: dict[tuple[str, str], JSONObject], *, known: bool
) -> list[str]:
    """Return a clause for each object that is missing, different or not needed.

    ``known`` says whether the command line of the replicas names the excluded namespaces.
    """
    problems = []
    expected = {(obj["kind"], obj["metadata"]["name"]): obj for obj in desired}
    for (kind, name), obj in expected.items():
        deployed = live.get((kind, name))
        if deployed is None:
            problems.append(f"{kind} {name} does not exist")
        elif _comparable(obj["spec"], known) != _comparable(deployed.get("spec") or {}, known):
            problems.append(f"{kind} {name} does not match the policy")
    unneeded = sorted(live.keys() - expected)
    return problems + [f"{kind} {name} is not needed" for kind, name in unneeded]


def _comparable(spec: JSONObject, known: bool) -> JSONObject:
    return spec if known else {k: v for k, v in spec.items() if k != "matchConstraints"}

"""Whether the second line is in the API server, as it is compiled from the policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from policies.kubernetes.objects import JSONObject
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn
from webhook.doctor.registered import wanted_registration
from webhook.registration.admission_policies.objects import (
    POLICY_KIND,
    Target,
    admission_policies,
)
from webhook.registration.admission_policies.registrar import type_warnings

_CHECK = "admission policies"
_REPAIR = "The leader repairs them within seconds. If not, see its log and metadata.managedFields"
_APPLY = "Apply the output of gpufence manifests --admission-policies"


def check(found: Installation, today: date) -> Iterator[Line]:
    """Yield whether the in-tree policies and bindings are as the policy compiles to."""
    if _CHECK in found.refused:
        yield skip(_CHECK, f"cannot be listed: {found.refused[_CHECK]}")
        return
    present = found.admission_policies
    if present is None:
        problem = "the API server does not serve ValidatingAdmissionPolicy v1"
        yield warn(_CHECK, problem, "Upgrade to Kubernetes 1.30; until then only replicas reject")
        return
    registration = wanted_registration(found)
    if found.policy is None or registration is None:
        yield skip(_CHECK, "what they contain follows from the policy and the registration")
        return
    registers = found.deployed is not None and found.deployed.registers
    enabled = found.deployed is None or found.deployed.admission_policies
    by_name = {(kind, name): obj for kind, each in present.items() for name, obj in each.items()}
    if not by_name and not (registers and enabled):
        cure = "Set admissionPolicies.enabled" if registers else _APPLY
        yield warn(_CHECK, "there are none: in an outage, API servers reject no trespasser", cure)
        return
    target = Target(
        name=found.name, excluded_namespaces=registration.excluded_namespaces, today=today
    )
    wanted = admission_policies(found.policy, target) if enabled else ()
    problems = _problems(wanted, by_name, known=registers)
    if problems:
        yield fail(_CHECK, "; ".join(problems), _REPAIR if registers else _APPLY)
    else:
        count = sum(obj["kind"] == POLICY_KIND for obj in wanted)
        yield ok(_CHECK, f"all {count} and their bindings are as compiled from the policy")
    for warning in type_warnings(present[POLICY_KIND].values()):
        yield warn("admission policy types", warning, "Report it, with your Kubernetes version")


def _problems(
    wanted: tuple[JSONObject, ...], found: dict[tuple[str, str], JSONObject], *, known: bool
) -> list[str]:
    """Return what is missing, different or superfluous, a clause each.

    ``known`` says that the excluded namespaces are known: the command line names them.
    """
    problems = []
    expected = {(obj["kind"], obj["metadata"]["name"]): obj for obj in wanted}
    for (kind, name), obj in expected.items():
        there = found.get((kind, name))
        if there is None:
            problems.append(f"there is no {kind} {name}")
        elif _comparable(obj["spec"], known) != _comparable(there.get("spec") or {}, known):
            problems.append(f"{kind} {name} differs")
    return problems + [f"{kind} {name} is left over" for kind, name in found.keys() - expected]


def _comparable(spec: JSONObject, known: bool) -> JSONObject:
    return spec if known else {k: v for k, v in spec.items() if k != "matchConstraints"}

"""The default policy as MutatingAdmissionPolicy and ValidatingAdmissionPolicy, for comparison.

Each policy is one expression, the fastest way to write it. They cover the benchmark's Pods only:
they ignore Pods with their own affinity or security context.
"""

from __future__ import annotations

from typing import Any

from policies.policy import Policy
from webhook.cel.match_conditions import concerns, is_mutated

JSON = dict[str, Any]

NAME = "bench.example.com"
GROUP = "admissionregistration.k8s.io/v1"

_DEVICE = 'has(c.resources.requests) && c.resources.requests.exists(k, k.contains("/"))'
# CEL comprehensions provide no index: filter a list of indices that is long enough.
_INDICES = f"{list(range(40))}.filter(i, i < size(object.spec.containers))"
_HAS_DEVICE = _DEVICE.replace("c.", "object.spec.containers[i].")

_ADDITIONS = f"""
[
  JSONPatch{{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{{
    key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule"}}}},
  JSONPatch{{op: "add", path: "/spec/affinity", value: Object.spec.affinity{{
    nodeAffinity: Object.spec.affinity.nodeAffinity{{
      requiredDuringSchedulingIgnoredDuringExecution:
        Object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution{{
          nodeSelectorTerms: [Object.spec.affinity.nodeAffinity
            .requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms{{
              matchExpressions: [Object.spec.affinity.nodeAffinity
                .requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
                .matchExpressions{{
                  key: "nvidia.com/gpu.present", operator: "In", values: ["true"]}}]}}]}}}}}}}},
  JSONPatch{{op: "add", path: "/spec/securityContext", value: Object.spec.securityContext{{
    runAsNonRoot: true, runAsUser: 65532,
    seccompProfile: Object.spec.securityContext.seccompProfile{{type: "RuntimeDefault"}}}}}}
]
+ {_INDICES}.map(i, JSONPatch{{
    op: "add", path: "/spec/containers/" + string(i) + "/securityContext",
    value: Object.spec.containers.securityContext{{
      allowPrivilegeEscalation: false,
      capabilities: Object.spec.containers.securityContext.capabilities{{drop: ["ALL"]}}}}}})
+ {_INDICES}.filter(i, !({_HAS_DEVICE})).map(i, JSONPatch{{
    op: "add", path: "/spec/containers/" + string(i) + "/env/-",
    value: Object.spec.containers.env{{name: "NVIDIA_VISIBLE_DEVICES", value: "void"}}}})
"""

_RESTRICTED = """
(!has(object.spec.hostNetwork) || !object.spec.hostNetwork)
&& (!has(object.spec.hostPID) || !object.spec.hostPID)
&& (!has(object.spec.hostIPC) || !object.spec.hostIPC)
&& (!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath)))
&& object.spec.securityContext.runAsNonRoot && object.spec.securityContext.runAsUser != 0
&& object.spec.securityContext.seccompProfile.type in ["RuntimeDefault", "Localhost"]
&& object.spec.containers.all(c,
  !c.securityContext.allowPrivilegeEscalation && "ALL" in c.securityContext.capabilities.drop
  && (!has(c.securityContext.privileged) || !c.securityContext.privileged))
"""
_TRESPASS = """
has(object.spec.tolerations) && object.spec.tolerations.exists(t,
  !has(t.key) || t.key == "" || t.key == "nvidia.com/gpu")
|| has(object.spec.nodeSelector) && "nvidia.com/gpu.present" in object.spec.nodeSelector
"""


def admission_policies(policy: Policy) -> list[JSON]:
    """Return both policies and their bindings, with the match conditions of gpufence."""
    gpu = is_mutated(policy)
    concerned = concerns(policy)
    mutating = _policy("Mutating", gpu)
    mutating["spec"] |= {
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _ADDITIONS}}],
    }
    validating = _policy("Validating", concerned)
    expression = f"({gpu}) ? ({_RESTRICTED}) : !({_TRESPASS})"
    validating["spec"]["validations"] = [{"expression": expression}]
    bindings = [_binding("Mutating"), _binding("Validating")]
    bindings[1]["spec"]["validationActions"] = ["Deny"]
    return [mutating, validating, *bindings]


def _policy(kind: str, condition: str) -> JSON:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    return {
        "apiVersion": GROUP,
        "kind": f"{kind}AdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "reaches-for-gpu-nodes", "expression": condition}],
        },
    }


def _binding(kind: str) -> JSON:
    return {
        "apiVersion": GROUP,
        "kind": f"{kind}AdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME},
    }

"""The MutatingAdmissionPolicy and its binding: GPU Pods that the API server mutates."""

from __future__ import annotations

from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.cel.additions import additions
from webhook.cel.configurations import (
    API_VERSION,
    DESCRIPTION,
    Registration,
    namespace_selector,
    rule,
)
from webhook.cel.covered import covers, definitions, referring
from webhook.cel.text import call, joined, printed

POLICY_KIND = "MutatingAdmissionPolicy"
BINDING_KIND = "MutatingAdmissionPolicyBinding"


def mutating_policy(
    policy: Policy, registration: Registration, name: str
) -> tuple[JSONObject, ...]:
    """Return the MutatingAdmissionPolicy and its binding; nothing if it would cover no Pod.

    It has one mutation, because the API server applies several of them one by one, and a Pod is
    mutated completely or not at all. The failure policy is Ignore: a Pod that the API server fails
    to mutate lacks something, and goes to the webhook.
    """
    covered = covers(policy, registration.left_out)
    if covered == "false":
        return ()
    metadata = registration.metadata(name)
    description = "Adds to GPU Pods what gpufence requires, if the Pod alone decides what that is."
    defined = [
        (name, referring(expression, "variables."))
        for name, expression in definitions(policy, registration.left_out, "object")
    ]
    operations = joined(*(f"// {each.comment}\n{each.operations}" for each in additions(policy)))
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespace_selector(policy, registration.excluded_namespaces),
            "objectSelector": {},
            "resourceRules": [rule("", "v1", ["CREATE"], ["pods"])],
        },
        "matchConditions": [
            {
                "name": "is-covered",
                "expression": printed(call("[object]", "exists", "pod", covered)),
            }
        ],
        "variables": [{"name": name, "expression": value} for name, value in defined],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": referring(operations, "variables.")},
            }
        ],
    }
    bound = {"policyName": name}
    return (
        {
            "apiVersion": API_VERSION,
            "kind": POLICY_KIND,
            "metadata": {**metadata, "annotations": {DESCRIPTION: description}},
            "spec": spec,
        },
        {"apiVersion": API_VERSION, "kind": BINDING_KIND, "metadata": metadata, "spec": bound},
    )

"""Definitions of the two APIs that have policy reports, with the fields that they both have.

Sources: ``wgpolicyk8s.io_policyreports.yaml`` (v1alpha2) of wg-policy-prototypes, and
``openreports.io_reports.yaml`` of openreports/reports-api, whose schemas name the same.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

KINDS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "wgpolicyk8s.io": (
        "v1alpha2",
        {
            "policyreports": ("PolicyReport", "Namespaced"),
            "clusterpolicyreports": ("ClusterPolicyReport", "Cluster"),
        },
    ),
    "openreports.io": (
        "v1alpha1",
        {"reports": ("Report", "Namespaced"), "clusterreports": ("ClusterReport", "Cluster")},
    ),
}
_TEXT: Object = {"type": "string"}
_COUNT: Object = {"type": "integer"}
_RESULTS = ("pass", "fail", "warn", "error", "skip")


def _fields(**properties: Object) -> Object:
    return {"type": "object", "properties": properties}


_REFERENCE = _fields(apiVersion=_TEXT, kind=_TEXT, namespace=_TEXT, name=_TEXT, uid=_TEXT)
_RESULT = {
    **_fields(
        source=_TEXT,
        policy=_TEXT,
        rule=_TEXT,
        category=_TEXT,
        message=_TEXT,
        result={"type": "string", "enum": list(_RESULTS)},
        severity={"type": "string", "enum": ["critical", "high", "low", "medium", "info"]},
        properties={"type": "object", "additionalProperties": _TEXT},
        timestamp={**_fields(seconds=_COUNT, nanos=_COUNT), "required": ["nanos", "seconds"]},
    ),
    "required": ["policy"],
}
_SCHEMA = _fields(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata={"type": "object"},
    scope=_REFERENCE,
    summary=_fields(**dict.fromkeys(_RESULTS, _COUNT)),
    results={"type": "array", "items": _RESULT},
)


def definitions(group: str) -> list[Object]:
    """Return the CustomResourceDefinitions of a group."""
    version, kinds = KINDS[group]
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.{group}",
                # Groups that belong to Kubernetes need a word that they were approved.
                "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
            },
            "spec": {
                "group": group,
                "scope": scope,
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": plural,
                    "singular": kind.lower(),
                },
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": _SCHEMA},
                    }
                ],
            },
        }
        for plural, (kind, scope) in kinds.items()
    ]

"""Definitions of the two APIs that have policy reports, with the fields that they both have.

Sources: ``wgpolicyk8s.io_policyreports.yaml`` (v1alpha2) of wg-policy-prototypes, and
``openreports.io_reports.yaml`` of openreports/reports-api, whose schemas name the same.
"""

from __future__ import annotations

from typing import Any

from controlplane.objects import definition

Object = dict[str, Any]

KINDS = {
    "wgpolicyk8s.io": (
        "v1alpha2",
        (("PolicyReport", "Namespaced"), ("ClusterPolicyReport", "Cluster")),
    ),
    "openreports.io": ("v1alpha1", (("Report", "Namespaced"), ("ClusterReport", "Cluster"))),
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
    return [definition(group, version, kind, scope=scope, schema=_SCHEMA) for kind, scope in kinds]

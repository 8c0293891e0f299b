"""Flink operator: each Pod is a common template, with that of its role merged over it.

Sources: apache/flink-kubernetes-operator, ``FlinkDeploymentSpec.java`` and
``FlinkConfigBuilder.java``; Flink's documentation, "Native Kubernetes" and "External Resource
Framework".
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.paths import Path, field_path
from policies.kubernetes.template import Template, Unjudged
from webhook.tools.custom_resources.composed import ComposedTemplate, merge

_ROLES = ("jobManager", "taskManager")
_MAIN = "flink-main-container"
# What the configuration says of Pods: devices, placement, templates in files.
_CONF = (
    "external-resource",
    "kubernetes.jobmanager.",
    "kubernetes.taskmanager.",
    "kubernetes.pod-template",
)
_HARMLESS_ENDS = (
    ".cpu",
    ".replicas",
    ".service-account",
    ".cpu.limit-factor",
    ".memory.limit-factor",
)


def compose(spec: JSONObject, path: Path, obj: JSONObject) -> Iterator[Template | Unjudged]:
    """Yield the Pods of the job manager and of the task managers."""
    conf = mapping(spec.get("flinkConfiguration"))
    for key in conf:
        if str(key).startswith(_CONF) and not str(key).endswith(_HARMLESS_ENDS):
            at = (*path, "flinkConfiguration", key)
            yield Unjudged(at, "it changes the Pods of the job or task managers")
            return
    common = mapping(spec.get("podTemplate"))
    for role in _ROLES:
        own = mapping(mapping(spec.get(role)).get("podTemplate"))
        yield _compose(common, own, path, role, obj["kind"])


def _compose(common: JSONObject, own: JSONObject, at: Path, role: str, kind: str) -> Template:
    merged = mapping(merge(common, own))
    spec = mapping(merged.get("spec"))
    containers = [container for _, container in mappings(spec.get("containers"))]
    places = {
        str(container.get("name")): field_path((*place, "containers", index))
        for place, template in (((), common), ((role,), own))
        for place in [(*at, *place, "podTemplate", "spec")]
        for index, container in mappings(mapping(template.get("spec")).get("containers"))
    }
    inherited = mapping(common.get("spec")).keys() - mapping(own.get("spec")).keys()
    aliases = {key: field_path((*at, "podTemplate", "spec", key)) for key in inherited}
    aliases.pop("containers", None)
    for index, container in enumerate(containers):
        aliases[f"containers[{index}]"] = places[str(container.get("name"))]
    if _MAIN not in places:
        # The operator adds the main container.
        aliases[f"containers[{len(containers)}]"] = field_path((*at, role))
        containers.append({"name": _MAIN})
    raw = {**merged, "spec": {**spec, "containers": containers}}
    place = (*at, role, "podTemplate", "spec")
    return ComposedTemplate(raw, place, kind, aliases=aliases, editable=False)

"""Argo Workflows: every step of a workflow that runs containers is a Pod.

A step's template holds its main container next to fields of the Pod's spec. The workflow adds
volumes, the host network, and whatever else of the Pod the template leaves empty. Sources:
argoproj/argo-workflows, ``workflow/controller/workflowpod.go`` (``build``,
``addSchedulingConstraints``, ``addVolumeReferences``), ``operator.go``
(``mergedTemplateDefaultsInto``), ``agent.go``, ``pkg/apis/workflow/v1alpha1/workflow_types.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject, OversizedObjectError, mapping, mappings
from policies.kubernetes.paths import Path, field_path
from policies.kubernetes.template import Template, Unjudged
from webhook.tools.custom_resources.composed import MERGE_KEYS, ComposedTemplate, add_volumes, merge

_PLACEMENT = ("tolerations", "nodeSelector", "affinity")
_INHERITED = (*_PLACEMENT, "securityContext", "resourceClaims")
_MERGE_KEYS = {**MERGE_KEYS, "sidecars": "name", "tolerations": "key"}
_EXECUTOR_STEPS = ("resource", "data")
_AGENT_STEPS = ("http", "plugin")
_MAIN = "main"
_VARIABLE = "{{"

# The inherited values are copied for each step. A workflow of some hundred kilobytes could
# otherwise fill gigabytes. 20,000 values are 100 steps with 40 tolerations of 3 fields each.
_MAX_INHERITED = 20_000


class _Workflow(NamedTuple):
    spec: JSONObject
    path: Path
    kind: str

    @property
    def defaults(self) -> JSONObject:
        return mapping(self.spec.get("templateDefaults"))


class _Step(NamedTuple):
    """A template of a workflow; the callers' templates are those that it is nested in."""

    template: JSONObject
    path: Path


def compose(spec: JSONObject, path: Path, obj: JSONObject) -> Iterator[Template | Unjudged]:
    """Yield the Pod of each step that runs containers."""
    workflow = _Workflow(spec, path, obj["kind"])
    if spec.get("workflowTemplateRef"):
        yield Unjudged(
            (*path, "workflowTemplateRef"), "its steps are templates of another WorkflowTemplate"
        )
    steps = [
        step
        for index, template in mappings(spec.get("templates"))
        for step in _nested(_Step(template, (*path, "templates", index)))
    ]
    _check_size(workflow, len(steps))
    placed_by_caller = {
        field
        for step in steps
        if not _main_containers(step.template) and not _runs_executor(step.template)
        for field in _PLACEMENT
        if step.template.get(field)
    }
    for step in steps:
        yield from _pods(workflow, step, placed_by_caller)


def _nested(step: _Step) -> Iterator[_Step]:
    """Yield a template, and those that are written inline into its list of steps or its DAG."""
    yield step
    for path, call in _calls(step):
        if isinstance(inline := call.get("inline"), dict) and len(path) < _MAX_NESTING:
            yield from _nested(_Step(inline, (*path, "inline")))


_MAX_NESTING = 24
"""The length of the path of the deepest inline template."""


def _calls(step: _Step) -> Iterator[tuple[Path, JSONObject]]:
    """Yield the steps and tasks that call other templates, each with its path."""
    groups = step.template.get("steps")
    for index, group in enumerate(groups if isinstance(groups, list) else ()):
        for position, call in mappings(group):
            yield (*step.path, "steps", index, position), call
    for index, call in mappings(mapping(step.template.get("dag")).get("tasks")):
        yield (*step.path, "dag", "tasks", index), call


def _pods(
    workflow: _Workflow, step: _Step, placed_by_caller: set[str]
) -> Iterator[Template | Unjudged]:
    for path, call in _calls(step):
        if call.get("templateRef"):
            reason = "it calls a template of another WorkflowTemplate"
            yield Unjudged((*path, "templateRef"), reason)
    merged = mapping(
        merge(_applicable(workflow.defaults, step.template), step.template, _MERGE_KEYS)
    )
    if any(merged.get(kind) for kind in _AGENT_STEPS):
        merged = {}
    elif not (_main_containers(merged) or _runs_executor(merged)):
        return
    if merged.get("podSpecPatch") or workflow.spec.get("podSpecPatch"):
        yield Unjudged(step.path, "its podSpecPatch is applied when the step runs")
        return
    if any(not merged.get(field) for field in placed_by_caller):
        yield Unjudged(step.path, "its placement comes from the template that calls it")
        return
    if mapping(merged.get("resource")).get("manifest"):
        path = (*step.path, "resource", "manifest")
        yield Unjudged(path, "the step creates this object when it runs")
    template = _compose(workflow, step, merged)
    spec = template.raw["spec"]
    if any(_has_variable(spec.get(field)) for field in _PLACEMENT):
        yield Unjudged(step.path, "its placement contains variables")
        return
    yield template


def _applicable(defaults: JSONObject, template: JSONObject) -> JSONObject:
    """Return the defaults without those for templates of another type."""
    types = {"container", "containerSet", "script", "steps", "dag", "suspend"}
    types.update(_EXECUTOR_STEPS, _AGENT_STEPS)
    return {key: value for key, value in defaults.items() if key not in types or template.get(key)}


def _compose(workflow: _Workflow, step: _Step, whole: JSONObject) -> Template:
    holder, aliases = step.template, {}
    main = _main_containers(whole) or [("", {"name": _MAIN})]
    sidecars = mappings(whole.get("sidecars"))
    for index, (place, _) in enumerate(main):
        aliases[f"containers[{index}]"] = place
    for position, (index, _) in enumerate(sidecars, len(main)):
        aliases[f"containers[{position}]"] = f".sidecars[{index}]"
    containers = [container for _, container in (*main, *(("", c) for _, c in sidecars))]
    spec = {**whole, "containers": containers}
    inherited = {
        name: workflow.spec[name]
        for name in _INHERITED
        if not spec.get(name) and workflow.spec.get(name)
    }
    if workflow.spec.get("hostNetwork") is not None:
        inherited["hostNetwork"] = workflow.spec["hostNetwork"]
    resources = "podResources"
    if isinstance(whole.get(resources), dict):
        spec["resources"], aliases["resources"] = whole[resources], f".{resources}"
    elif isinstance(workflow.spec.get(resources), dict):
        spec["resources"] = workflow.spec[resources]
        aliases["resources"] = f"{field_path(workflow.path)}.{resources}"
    spec |= inherited
    aliases |= {name: f"{field_path(workflow.path)}.{name}" for name in inherited}
    defaults = f"{field_path(workflow.path)}.templateDefaults"
    aliases |= {name: f"{defaults}.{name}" for name in whole.keys() - holder.keys()}
    add_volumes(spec, aliases, workflow.spec, workflow.path)
    metadata = merge(mapping(workflow.spec.get("podMetadata")), mapping(whole.get("metadata")))
    raw = {"spec": spec, "metadata": metadata}
    added = {name: spec[name] for name in ("resources", "volumes") if name in spec}
    # With defaults or shared mounts, containers are merged.
    editable = whole == holder and not mapping(whole.get("containerSet")).get("volumeMounts")
    return ComposedTemplate(
        raw,
        step.path,
        workflow.kind,
        aliases=aliases,
        inherited=inherited | added,
        editable=editable,
    )


def _main_containers(template: JSONObject) -> list[tuple[str, JSONObject]]:
    """Return the main containers of a step, each with its place in the template."""
    for key in ("container", "script"):
        if isinstance(container := template.get(key), dict):
            return [(f".{key}", {**container, "name": _MAIN})]
    group = mapping(template.get("containerSet"))
    shared = group.get("volumeMounts")
    return [
        (
            f".containerSet.containers[{index}]",
            merge(container, {"volumeMounts": shared}) if shared else container,
        )
        for index, container in mappings(group.get("containers"))
    ]


def _runs_executor(template: JSONObject) -> bool:
    """Return whether the step's Pod runs Argo's executor alone."""
    return any(isinstance(template.get(kind), dict) for kind in _EXECUTOR_STEPS)


def _check_size(workflow: _Workflow, steps: int) -> None:
    inherited = {name: workflow.spec.get(name) for name in (*_INHERITED, "templateDefaults")}
    count = steps * _values(inherited)
    if count > _MAX_INHERITED:
        raise OversizedObjectError(
            field_path(workflow.path),
            f"its {steps:,} templates inherit {count:,} values from it; gpufence accepts up to "
            f"{_MAX_INHERITED:,}",
        )


def _values(value: Any) -> int:
    """Return the number of values in a JSON value, which counts as one itself."""
    parts = value.values() if isinstance(value, dict) else value
    return 1 + (sum(map(_values, parts)) if isinstance(value, dict | list) else 0)


def _has_variable(value: Any) -> bool:
    """Return whether a string in a JSON value is filled in when the workflow runs."""
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        return any(map(_has_variable, parts))
    return isinstance(value, str) and _VARIABLE in value

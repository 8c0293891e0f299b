"""Pods that a controller composes from pieces: no pod template stands in the object as a whole.

Argo Workflows write a template's container beside the parts of its Pod's spec, and what a template
leaves out comes from the workflow (argo-workflows, workflow/controller/workflowpod.go). KServe
writes the model server beside an inline Pod spec (kserve, pkg/apis/serving/v1beta1, predictor.go).
Kubeflow's TrainJob names a runtime, another object with the pod template, and says only what each
of its Pods requests (trainer, pkg/apis/trainer/v1alpha1, trainjob_types.go, ResourcesPerNode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from policies.facts import JSONObject
from policies.kubernetes.pod import RESOURCE_SIDES
from policies.kubernetes.shape import OversizedObjectError
from policies.kubernetes.template import Template, field_path

_WORKFLOWS: dict[str, tuple[str, ...]] = {
    "ClusterWorkflowTemplate": ("spec",),
    "CronWorkflow": ("spec", "workflowSpec"),
    "Workflow": ("spec",),
    "WorkflowTemplate": ("spec",),
}
_INHERITED = ("tolerations", "nodeSelector", "affinity", "securityContext")
_COMPONENTS = ("predictor", "transformer", "explainer")

# What the steps of a workflow inherit is copied for each of them. Where that would be more values
# than this in all (1,000 steps with 40 tolerations of 3 fields each), a workflow of some hundred
# kilobytes could fill gigabytes.
_MOST_INHERITED = 200_000


def composer(group: str, kind: str) -> Callable[[JSONObject], Iterator[Template]] | None:
    """Return what finds the Pods of objects of this kind, where they are composed."""
    if group == "argoproj.io" and kind in _WORKFLOWS:
        return _of_workflow
    if group == "serving.kserve.io" and kind == "InferenceService":
        return _of_inference_service
    if group == "trainer.kubeflow.org" and kind == "TrainJob":
        return _of_train_job
    return None


def _of_workflow(obj: JSONObject) -> Iterator[Template]:
    path = _WORKFLOWS[obj["kind"]]
    workflow: Any = obj
    for step in path:
        workflow = _mapping(_mapping(workflow).get(step))
    templates = workflow.get("templates")
    templates = templates if isinstance(templates, list) else []
    inherited = len(templates) * _values({name: workflow.get(name) for name in _INHERITED})
    if inherited > _MOST_INHERITED:
        raise OversizedObjectError(
            field_path(path),
            f"its {len(templates):,} templates inherit {inherited:,} values from it; gpufence "
            f"copies up to {_MOST_INHERITED:,}",
        )
    for index, holder in enumerate(templates):
        for key in ("container", "script"):
            main = _mapping(holder).get(key)
            if isinstance(main, dict):
                yield _of_step(workflow, path, holder, index, key, obj["kind"])


def _of_step(
    workflow: JSONObject, path: tuple[str, ...], holder: JSONObject, index: int, key: str, kind: str
) -> Template:
    sidecars = holder.get("sidecars")
    sidecars = sidecars if isinstance(sidecars, list) else []
    aliases = {f"containers[{n}]": f".sidecars[{n - 1}]" for n in range(1, len(sidecars) + 1)}
    aliases["containers[0]"] = f".{key}"
    spec = {**holder, "containers": [holder[key], *sidecars]}
    inherited = {
        name: workflow[name]
        for name in _INHERITED
        if spec.get(name) is None and workflow.get(name) is not None
    }
    # Copies: what is added for one step is not for the others, which inherit the same.
    spec |= deepcopy(inherited)
    aliases |= {name: f"{field_path(path)}.{name}" for name in inherited}
    raw = {"spec": spec, "metadata": _mapping(holder.get("metadata"))}
    return Template(raw, (*path, "templates", index), kind, aliases, holder, inherited)


def _of_inference_service(obj: JSONObject) -> Iterator[Template]:
    components = _mapping(obj.get("spec"))
    for component in _COMPONENTS:
        holder = components.get(component)
        if not isinstance(holder, dict):
            continue
        listed = holder.get("containers")
        listed = listed if isinstance(listed, list) else []
        servers = [
            (key, value)
            for key, value in holder.items()
            if isinstance(value, dict) and isinstance(value.get("resources"), dict)
        ]
        if not listed and not servers:
            continue
        aliases = {
            f"containers[{len(listed) + index}]": f".{key}"
            for index, (key, _) in enumerate(servers)
        }
        spec = {**holder, "containers": [*listed, *(value for _, value in servers)]}
        yield Template({"spec": spec}, ("spec", component), obj["kind"], aliases, holder)


def _of_train_job(obj: JSONObject) -> Iterator[Template]:
    """Yield what is known of the trainer's Pods, where they request devices.

    Whatever else they have comes from the runtime, and is judged when they are created.
    """
    trainer = _mapping(_mapping(obj.get("spec")).get("trainer"))
    resources = _mapping(trainer.get("resourcesPerNode"))
    if not any(
        "/" in str(name) for side in RESOURCE_SIDES for name in _mapping(resources.get(side))
    ):
        return
    # The runtime's container of that name takes the place of its own resources with these.
    spec = {"containers": [{"name": "node", "resources": resources}]}
    aliases = {"containers[0].resources": ".resourcesPerNode"}
    path = ("spec", "trainer")
    yield Template({"spec": spec}, path, obj["kind"], aliases, trainer, devices_only=True)


def _values(value: Any) -> int:
    """Return how many values there are in a JSON value, itself among them."""
    if isinstance(value, dict):
        return 1 + sum(map(_values, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_values, value))
    return 1


def _mapping(value: Any) -> JSONObject:
    return value if isinstance(value, dict) else {}

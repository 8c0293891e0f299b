"""KServe and Kubeflow Trainer: a runtime or a preset, another object, has the containers.

Sources: kserve/kserve, ``pkg/apis/serving/v1beta1`` (``predictor.go``, ``component.go``),
``pkg/controller/v1beta1/inferenceservice/components/predictor.go`` (the runtime is the base, the
service is merged over it), ``pkg/apis/serving/v1alpha1/llm_inference_service_types.go``,
``pkg/controller/v1alpha2/llmisvc/managed_dra.go``; kubeflow/trainer,
``pkg/apis/trainer/v1alpha1/trainjob_types.go`` (``ResourcesPerNode``).
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.paths import Path, descend
from policies.kubernetes.template import Template, Unjudged, names_device
from policies.kubernetes.templates import INCOMPLETE, Search, has_devices
from webhook.tools.custom_resources.composed import ComposedTemplate

_SERVER = "kserve-container"
_COMPONENTS = ("predictor", "transformer", "explainer")
_SERVERS = frozenset(
    {
        "art",
        "huggingface",
        "lightgbm",
        "model",
        "onnx",
        "paddle",
        "pmml",
        "pytorch",
        "sklearn",
        "tensorflow",
        "triton",
        "xgboost",
    }
)
_FROM_RUNTIME = "its container and its resources come from a ServingRuntime"
_FROM_PRESET = "its container comes from an LLMInferenceServiceConfig"
_MANAGED_CLAIM = "serving.kserve.io/exp-dra-device-class"
_COMPLETED_BY = {
    "ServingRuntime": "an InferenceService completes its containers",
    "TrainingRuntime": "a TrainJob completes its containers",
}
_LLM_TEMPLATES: tuple[tuple[str, ...], ...] = (
    ("template",),
    ("worker",),
    ("prefill", "template"),
    ("prefill", "worker"),
    ("router", "scheduler", "template"),
    ("router", "scheduler", "tokenizer", "template"),
)


def compose_service(spec: JSONObject, path: Path, obj: JSONObject) -> Iterator[Template | Unjudged]:
    """Yield the Pods of an InferenceService: of each component, and of its workers."""
    holders = {name: spec[name] for name in _COMPONENTS if isinstance(spec.get(name), dict)}
    if not holders:
        yield Unjudged(path, _FROM_RUNTIME)
    for name, holder in holders.items():
        yield from _component(holder, (*path, name), obj["kind"])
        if isinstance(workers := holder.get("workerSpec"), dict):
            yield from _overlay(workers, (*path, name, "workerSpec"), obj["kind"], _FROM_RUNTIME)


def _component(holder: JSONObject, path: Path, kind: str) -> Iterator[Template | Unjudged]:
    """Yield a component's Pod: the containers of its inline spec, and its model server."""
    listed = [container for _, container in mappings(holder.get("containers"))]
    servers = [
        (key, value)
        for key, value in holder.items()
        if isinstance(value, dict) and (key in _SERVERS or "resources" in value)
    ]
    for key, server in servers:
        # Its resources are merged over those of the runtime.
        if not names_device(server):
            yield Unjudged((*path, key), _FROM_RUNTIME)
            return
    if not listed and not servers:
        yield Unjudged(path, _FROM_RUNTIME)
        return
    aliases = {
        f"containers[{len(listed) + index}]": f".{key}" for index, (key, _) in enumerate(servers)
    }
    spec = {
        **holder,
        "containers": [*listed, *({"name": _SERVER, **server} for _, server in servers)],
    }
    yield ComposedTemplate({"spec": spec}, path, kind, aliases=aliases)


def compose_llm_service(
    spec: JSONObject, path: Path, obj: JSONObject
) -> Iterator[Template | Unjudged]:
    """Yield the Pods of an LLMInferenceService: its templates are merged over presets."""
    reason = _completed_by(obj, spec)
    found = False
    for below in _LLM_TEMPLATES:
        template = descend(spec, below)
        if isinstance(template, dict):
            found = True
            at = (*path, *below)
            if reason:
                yield from _overlay(template, at, obj["kind"], reason)
            elif template.get("containers"):
                yield Template({"spec": template}, at, obj["kind"])
            else:
                yield Unjudged(at, _FROM_PRESET)
    if not found and obj["kind"] == "LLMInferenceService":
        yield Unjudged(path, _FROM_PRESET)


def compose_runtime(spec: JSONObject, path: Path, obj: JSONObject) -> Iterator[Template | Unjudged]:
    """Yield the templates of a runtime. Those without devices may get some from other objects."""
    reason = _COMPLETED_BY[obj["kind"].removeprefix("Cluster")]
    for part in Search().below(spec, path, obj["kind"]):
        if isinstance(part, Unjudged):
            yield part._replace(reason=reason) if part.reason is INCOMPLETE else part
        elif has_devices(part):
            yield part
        else:
            yield Unjudged(part.spec_path, reason, part.raw["spec"])


def compose_train_job(
    spec: JSONObject, path: Path, obj: JSONObject
) -> Iterator[Template | Unjudged]:
    """Yield what is known of the trainer's Pods, if they request devices.

    The TrainJob sets the resources of each of its nodes, and patches the template of its runtime.
    """
    trainer = mapping(spec.get("trainer"))
    container = {"name": "node", "resources": mapping(trainer.get("resourcesPerNode"))}
    if names_device(container):
        # They replace the resources of the runtime's container of that name.
        aliases = {"containers[0].resources": ".resourcesPerNode"}
        raw = {"spec": {"containers": [container]}}
        place = (*path, "trainer")
        yield ComposedTemplate(raw, place, obj["kind"], aliases=aliases, devices_only=True)
    yield Unjudged((*path, "runtimeRef"), "the pod template is part of the training runtime")


def _completed_by(obj: JSONObject, spec: JSONObject) -> str:
    """Return what may add devices to the containers of the templates; empty if nothing does."""
    if obj["kind"] != "LLMInferenceService":
        return "an LLMInferenceService completes its containers"
    annotations = mapping(mapping(obj.get("metadata")).get("annotations"))
    if annotations.get(_MANAGED_CLAIM):
        return "KServe adds a resource claim for its annotation"
    return _FROM_PRESET if spec.get("baseRefs") else ""


def _overlay(spec: JSONObject, path: Path, kind: str, reason: str) -> Iterator[Template | Unjudged]:
    """Yield a Pod's spec that is merged over another one, if it says which devices it requests."""
    if any(names_device(container) for _, container in mappings(spec.get("containers"))):
        yield Template({"spec": spec}, path, kind)
    else:
        yield Unjudged(path, reason)

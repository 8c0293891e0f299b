"""Spark operator: driver and executor are described in Spark's terms, partly in a pod template.

Sources: kubeflow/spark-operator, ``api/v1beta2/sparkapplication_types.go`` (``SparkPodSpec``),
``internal/webhook/sparkpod_defaulter.go`` (``addGPU`` and the others),
``internal/controller/sparkapplication/submission.go`` (labels); apache/spark,
``resource-managers/kubernetes/core``, ``KubernetesUtils.buildResourcesQuantities`` and
``BasicExecutorFeatureStep`` (``spark.{driver,executor}.resource.*``).
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.paths import Path, below, field_path
from policies.kubernetes.template import Template, Unjudged
from webhook.tools.custom_resources.composed import ComposedTemplate, add_volumes, merge

_ROLES = ("driver", "executor")
# What the configuration says of Pods: their node selection, their template.
_CONF = ("spark.kubernetes.{}.node.selector.", "spark.kubernetes.{}.podTemplate")
_CONF_OF_DEVICES = "spark.{}.resource."
_CONF_OF_BOTH = "spark.kubernetes.node.selector."
_POD_FIELDS = ("affinity", "hostNetwork", "initContainers", "nodeSelector", "tolerations")
_CONTAINER_FIELDS = ("env", "envFrom", "image", "lifecycle", "securityContext", "volumeMounts")


class _SparkTemplate(ComposedTemplate, frozen=True):
    def request_for(self, device: str) -> str:
        return f"Set gpu: {{name: {device}, quantity: 1}} in {field_path(self.spec_path)}"


def compose(application: JSONObject, path: Path, obj: JSONObject) -> Iterator[Template | Unjudged]:
    """Yield the Pods of the driver and of the executors."""
    conf = mapping(application.get("sparkConf"))
    for role in _ROLES:
        holder = mapping(application.get(role))
        starts = (_CONF_OF_BOTH, *(start.format(role) for start in _CONF))
        set_in_conf = [key for key in conf if str(key).startswith(starts)]
        devices, unclear = _devices(conf, _CONF_OF_DEVICES.format(role))
        if set_in_conf or unclear:
            at = (*path, "sparkConf", [*set_in_conf, *unclear][0])
            yield Unjudged(at, f"it changes the Pod of the {role}")
        else:
            yield _compose(application, path, role, holder, devices, obj["kind"])


def _devices(conf: JSONObject, start: str) -> tuple[dict[str, str], list[str]]:
    """Return the key of the amount of each device in the configuration, and keys that are unclear.

    ``spark.executor.resource.gpu.amount`` and ``.vendor`` make ``nvidia.com/gpu``.
    """
    devices, unclear = {}, []
    for key in (str(key) for key in conf if str(key).startswith(start)):
        name, _, field = key.removeprefix(start).rpartition(".")
        vendor, amount = (conf.get(f"{start}{name}.{part}") for part in ("vendor", "amount"))
        if not name or not vendor or not str(amount).isdecimal():
            unclear.append(key)
        elif field == "amount":
            devices[f"{vendor}/{name}"] = key
    return devices, unclear


def _compose(
    application: JSONObject,
    at: Path,
    role: str,
    holder: JSONObject,
    devices: dict[str, str],
    kind: str,
) -> Template:
    template = mapping(holder.get("template"))
    base = mapping(template.get("spec"))
    listed = [container for _, container in mappings(base.get("containers"))]
    main = {key: holder[key] for key in _CONTAINER_FIELDS if holder.get(key) is not None}
    main["name"] = f"spark-kubernetes-{role}"
    aliases = {key: f".template.spec.{key}" for key in base}
    if listed:
        main = merge(listed[0], main)
    for device, key in devices.items():
        amount = application["sparkConf"][key]
        main = merge(main, {"resources": {"limits": {device: amount}}})
        place = field_path((*at, "sparkConf", key))
        aliases[f"containers[0].resources.{below('limits', device)}"] = place
    gpu = mapping(holder.get("gpu"))
    if isinstance(name := gpu.get("name"), str):
        main = merge(main, {"resources": {"limits": {name: gpu.get("quantity")}}})
        aliases[f"containers[0].resources.{below('limits', name)}"] = ".gpu.quantity"
    aliases |= {f"containers[0].{key}": f".{key}" for key in _CONTAINER_FIELDS if key in holder}
    containers = [main]
    for index, container in enumerate(listed[1:], 1):
        aliases[f"containers[{index}]"] = f".template.spec.containers[{index}]"
        containers.append(container)
    for index, sidecar in mappings(holder.get("sidecars")):
        aliases[f"containers[{len(containers)}]"] = f".sidecars[{index}]"
        containers.append(sidecar)
    spec = {**base, "containers": containers}
    for key in _POD_FIELDS:
        if holder.get(key) is not None:
            spec[key] = merge(base.get(key), holder[key], field=key)
            aliases[key] = f".{key}"
    if application.get("nodeSelector") and not spec.get("nodeSelector"):
        spec["nodeSelector"] = application["nodeSelector"]
        aliases["nodeSelector"] = f"{field_path(at)}.nodeSelector"
    if holder.get("podSecurityContext") is not None:
        spec["securityContext"] = holder["podSecurityContext"]
    if "securityContext" not in base or holder.get("podSecurityContext") is not None:
        aliases["securityContext"] = ".podSecurityContext"
    add_volumes(spec, aliases, application, at)
    labels = {"labels": mapping(holder.get("labels"))}
    aliases["metadata.labels"] = ".labels"
    raw = {"spec": spec, "metadata": merge(mapping(template.get("metadata")), labels)}
    return _SparkTemplate(raw, (*at, role), kind, aliases=aliases, editable=False)

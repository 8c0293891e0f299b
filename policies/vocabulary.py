"""Words that rules and admission policies share: names, clauses and remediation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from policies.kubernetes.field_types import NO_NAMES
from policies.kubernetes.scheduling import Alternative
from policies.kubernetes.selector import negated
from policies.policy import Policy, Pool
from policies.vendors import device_files_of, runtimes_of, variables_of
from policies.wording import capitalized, listing

LACK = "the Pod requests no GPU"
TOLERATION = "remove the toleration"
SELECTION = "remove the node selection"

SHOWS_GPUS = "which shows it GPUs, but it requests none"
ONLY_CLAIMS = "but it has only claims, whose devices need no variable"
IN_PLACE = "whichever device the scheduler assigns"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Source: kubernetes-sigs/kueue, ``pkg/controller/constants``, QueueLabel."""

CDI_ANNOTATIONS = frozenset(
    {
        "cdi.k8s.io",  # toolkit, api/config/v1/config.go, AnnotationPrefixes
        "nvidia.cdi.k8s.io",  # toolkit, cmd/nvidia-ctk-installer/container/runtime/nri/plugin.go
        "cdi-devices.noderesource.dev",  # NRI, plugins/device-injector/device-injector.go
        "cdi-devices.nri.io",  # the same, the older name
        "cdi.nri.io",  # github.com/klueska/nri-cdi-injector
    }
)
"""Annotations with names of CDI devices, as nvidia.com/gpu=all.

*toolkit* and *NRI* are as in ``policies.device_injection``."""

GKE_DEVICES = "devices.gke.io"
"""The annotation of GKE's NRI device injector (nri_device_injector)."""

FILE_ANNOTATIONS = frozenset(
    {
        GKE_DEVICES,
        "devices.noderesource.dev",  # NRI, plugins/device-injector/device-injector.go
        "devices.nri.io",  # the same, the older name
        "mounts.noderesource.dev",  # the same
        "mounts.nri.io",  # the same, the older name
        "devices.crio.io",  # CRI-O, pkg/annotations/v2
        "io.kubernetes.cri-o.Devices",  # the same, the older name
    }
)
"""Annotations with paths or numbers of device files."""

ANNOTATIONS = CDI_ANNOTATIONS | FILE_ANNOTATIONS
"""Keys of annotations up to a slash. The scope may follow it: ``/pod`` or ``/container.NAME``
(NRI, ``pkg/plugin/annotations.go``, ``GetEffectiveAnnotation``)."""

CORE = ("", "v1", "apps/v1", "batch/v1")
"""The API versions of owners whose template is judged, or that create no Pods."""

BASE_KINDS = frozenset(
    {
        "ClusterServingRuntime",
        "ClusterTrainingRuntime",
        "PodTemplate",
        "ServingRuntime",
        "TrainingRuntime",
    }
)
"""Kinds of templates whose user adds the request: the task, the service, the job."""
BASE_CONTAINERS = ("$job", "base", "flink-main-container", "spark-kubernetes-executor")
"""The container of a template for a GitHub runner, Airflow, Flink, and Spark's executors.

Sources: actions/runner-container-hooks, ``packages/k8s/src/k8s/utils.ts``; apache/airflow,
``providers/cncf/kubernetes``, ``pod_generator.py``; apache/flink and apache/spark, "Pod Template".
"""


class Writer(NamedTuple):
    """A controller that writes fields of the Pods with a label or annotation.

    Also on the object of their template. ``advice`` has VALUE for that of the label, NAMESPACE,
    and WHAT for the field if it is about the placement.
    """

    key: str
    value: str
    """Empty for every value."""
    advice: str


def _exception(key: str, value: str, why: str, setting: str = "") -> Writer:
    have = f"{setting}, or have" if setting else "Have"
    advice = f"{have} the cluster administrator add an exception for it in namespace NAMESPACE"
    return Writer(key, value, f"{advice}. {why}")


def _copy(key: str, value: str, what: str, setting: str = "") -> Writer:
    """Return who denies the copy must not take the placement from the other Pod."""
    why = f"{what} copies the placement of a GPU Pod, which must keep its toleration"
    return _exception(key, value, why, setting)


def _setting(key: str, product: str, instead: str) -> Writer:
    return Writer(key, "", f"If {product} sets it, {instead}. Otherwise remove WHAT")


_PROVIDER = "The provider of a dual Pod uses the GPU of its requester"
_PROFILE = "choose a profile without GPUs, or request the GPU"

WRITERS = (
    _copy(
        "app.kubernetes.io/component",
        "affinity-assistant",
        "The affinity assistant of Tekton",
        "Set coschedule: disabled in Tekton's ConfigMap feature-flags",
    ),
    _copy("app.kubernetes.io/created-by", "volsync", "The data mover of VolSync"),
    _copy("app", "containerized-data-importer", "The importer of KubeVirt"),
    _copy("kubevirt.io", "hotplug-disk", "The attachment Pod of a KubeVirt volume"),
    _copy("k8up.io/type", "", "The backup Job of K8up"),
    _copy("velero.io/data-upload", "", "The data mover of Velero"),
    _copy("velero.io/data-download", "", "The data mover of Velero"),
    _exception("dual-pods.llm-d.ai/dual", "", _PROVIDER),
    _exception("dual-pods.llm-d.ai/launcher-config-name", "", _PROVIDER),
    _setting(
        QUEUE_LABEL, "queue VALUE of Kueue", "have its administrator give these Pods a flavor "
        "without GPUs",
    ),
    _setting("opendatahub.io/hardware-profile-name", "hardware profile VALUE", _PROFILE),
    _setting("opendatahub.io/accelerator-name", "accelerator profile VALUE", _PROFILE),
    _setting(
        "hub.jupyter.org/username", "JupyterHub", "move it to the profile whose servers request "
        "a GPU with extra_resource_limits",
    ),
    _setting(
        "job.runner.gitlab.com/pod", "GitLab Runner", "remove it from [runners.kubernetes] in its "
        "config.toml",
    ),
    _setting(
        "actions-ephemeral-runner", "a runner scale set", "remove it from the template of its "
        "values",
    ),
    _setting(
        "kubernetes_executor", "Airflow", "remove it from pod_template_file, and let the tasks "
        "with a GPU request one in executor_config",
    ),
    _setting(
        "tekton.dev/taskRun", "Tekton", "remove it from the podTemplate of the run and from "
        "default-pod-template in ConfigMap config-defaults",
    ),
)  # fmt: skip
"""Sources: the documentation of each project; llm-d-incubation/llm-d-fast-model-actuation,
``pkg/api/interface.go``; opendatahub-io/opendatahub-operator, ``hardwareprofile`` webhook."""


def scheduler_advice(scheduler: str, otherwise: str) -> str:
    """Return what to do about a value that a scheduler may write."""
    return (
        f"If the scheduler {scheduler} chooses the GPU, have the cluster administrator add the "
        "annotations by which its Pods request one to annotationRequests of the pool, or add "
        f"an exception. Otherwise {otherwise}"
    )


def base_advice(remove: str) -> str:
    """Return what to do about the placement of a template to which others add the request."""
    return f"{capitalized(remove)}: gpufence adds it to each Pod that requests a GPU"


def class_advice(remove: str, classes: Collection[str], pool: str) -> str:
    """Return what to do about a Pod with claims on classes that no pool offers."""
    which = f"DeviceClass {listing(classes)}" if classes else "the DeviceClass of its claims"
    return (
        f"If {which} has devices of pool {pool}, have the cluster administrator add it to "
        f"deviceClasses of the pool. Otherwise {remove}"
    )


def describe_pools(pools: Iterable[Pool]) -> str:
    """Return the names of pools, for messages: ``pool a100``, or ``pools a100 and h100``."""
    names = [pool.name for pool in pools]
    return f"pool{'s' if len(names) > 1 else ''} {listing(names)}"


def tolerates(pools: Iterable[Pool]) -> str:
    """Return the clause about a toleration of the pools' taint."""
    return f"the toleration lets the Pod run on GPU nodes ({describe_pools(pools)})"


def selects(pools: Iterable[Pool]) -> str:
    """Return the clause about a node selection that names the pools' labels."""
    return f"the node selection places the Pod on GPU nodes ({describe_pools(pools)})"


def wildcard_remediation(pools: Collection[Pool]) -> str:
    """Return what to do about a toleration of every taint."""
    if not pools or not all(pool.selector for pool in pools):
        return "Name the taints that the Pod needs to tolerate"
    exclusions = listing(dict.fromkeys(map(exclusion, pools)))
    return (
        "Name the taints that the Pod needs to tolerate, or exclude GPU nodes with "
        f"{exclusions} in every term of the required node affinity"
    )


def request_or(remove: str, pools: Iterable[Pool]) -> str:
    """Return the remediation of a Pod that may use the nodes of one of the pools with a request."""
    likeliest = min(pools, key=lambda pool: not pool.resources.exact)
    return f"{likeliest.request}, or {remove}"


def exclusion(pool: Pool, kept: Pool | None = None) -> str:
    """Return an expression with which a term accepts no node of the pool, and some of ``kept``."""
    ways = [negated(each) for each in pool.requirements]
    fitting = (way for way in ways if kept and kept.can_meet(Alternative({}, (way,), (), "")))
    way = next(fitting, ways[0])
    # Nodes without the label meet NotIn, too.
    values = f", values: {json.dumps(way.values)}" if way.values else ""
    return f"{{key: {way.key}, operator: {way.operator}{values}}}"


@lru_cache(maxsize=16)
def visible_devices_variables(policy: Policy) -> tuple[str, ...]:
    """Return the variables that show devices: NVIDIA's, and those of the pools' vendors."""
    return tuple(variables_of({"nvidia.com", *policy.vendors}))


@lru_cache(maxsize=16)
def device_files(policy: Policy) -> tuple[str, ...]:
    """Return what the path of a device file of the pools' vendors contains: ``/dev/nvidia``."""
    return device_files_of(policy.vendors)


@lru_cache(maxsize=16)
def runtime_variables(policy: Policy) -> Mapping[str, str]:
    """Return the variables by container runtime: NVIDIA's, and those of the pools' vendors."""
    return runtimes_of({"nvidia.com", *policy.vendors})


def variable_remediation(name: str, policy: Policy, otherwise: str = "") -> str:
    """Return what to do about a variable that shows the devices of a vendor.

    Without the variable, that of the image counts.
    """
    of_vendor = variables_of(policy.vendors).get(name)
    pools = [pool for pool in policy.pools if of_vendor in pool.vendors]
    return f"{(pools or policy.pools)[0].request}, or {otherwise or f'set {name} to void'}"


def agent_remediation(otherwise: str) -> str:
    """Return what to do about a DaemonSet that sees the devices of its nodes."""
    return (
        "If the DaemonSet monitors or prepares the GPUs of its nodes, exempt its namespace in "
        f"the policy (exemptions.namespaces). Otherwise {otherwise}"
    )


@lru_cache(maxsize=16)
def volume_remediations(policy: Policy) -> Mapping[str, str]:
    """Return what to do about a volume, by the part of its path that names a device file."""
    return {file: _volume_remediation(file, policy) for file in device_files(policy)}


def _volume_remediation(file: str, policy: Policy) -> str:
    pools = [p for p in policy.pools if file in device_files_of(p.vendors, always=NO_NAMES)]
    # /dev/dri has the devices of several vendors.
    if not (pools or file == "/dev/dri/"):
        return "Remove the volume"
    return f"{(pools or policy.pools)[0].request} in place of the volume"

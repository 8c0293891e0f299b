"""The operators that the comparison runs: where their source is, and how they start.

Each is a Go module, in a pinned version. Its archive has the CustomResourceDefinitions, the webhook
configurations and the examples of that version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JSON = dict[str, Any]

KUEUE = "Kueue"


@dataclass(frozen=True)
class Start:
    """What a start needs to know: free ports of the loopback interface, and files."""

    directory: Path
    certificates: Path
    """A directory with tls.crt and tls.key, for the operator's own webhooks."""
    webhook_port: int
    health_port: int


@dataclass(frozen=True)
class Operator:
    """A Go module with an operator.

    ``settings`` returns the command line and the configuration file, if there is one.
    """

    name: str
    module: str
    version: str
    sum: str
    """The module's hash, as go.sum has it."""
    package: str
    binary: str
    definitions: str
    """The pattern of the CustomResourceDefinitions in the module."""
    webhooks: str
    """The file with the webhook configurations; empty if the operator runs without them."""
    examples: tuple[str, ...]
    """The patterns of the examples in the module, or in this directory."""
    kinds: frozenset[str]
    """The kinds of the examples that make Pods by way of the operator."""
    settings: Callable[[Start], tuple[list[str], JSON | None]]
    served: frozenset[str] = frozenset()
    """The resources whose webhooks are registered; empty for all of them."""
    examples_in_module: bool = True
    requires: tuple[str, ...] = ()
    """The operators that run next to it."""
    before: tuple[JSON, ...] = ()
    """What it expects in the cluster when it starts."""
    after: tuple[str, ...] = ()
    """The patterns of the module's manifests that its custom resources refer to."""
    ready: tuple[int, str] = (0, "/readyz")
    """The port of its health endpoint, 0 for the one in ``Start``, and the path."""
    certificates: Path | None = None
    """The directory of its serving certificate, if it cannot be chosen."""
    environment: dict[str, str] = field(default_factory=dict)
    completes: bool = False
    """Whether each Pod must succeed before the operator creates the next ones."""


def _component_config(
    api_version: str, arguments: Iterable[str] = (), **more: Any
) -> Callable[[Start], tuple[list[str], JSON]]:
    """Return settings in the form that JobSet, LeaderWorkerSet, Kueue and Trainer share."""

    def settings(start: Start) -> tuple[list[str], JSON]:
        webhook = {
            "port": start.webhook_port,
            "host": "127.0.0.1",
            "certDir": str(start.certificates),
        }
        config = {
            "apiVersion": api_version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": webhook,
            "metrics": {"bindAddress": "127.0.0.1:0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{start.health_port}"},
            **more,
        }
        return ["--config", str(start.directory / "config.yaml"), *arguments], config

    return settings


def _flags(*arguments: str) -> Callable[[Start], tuple[list[str], None]]:
    """Return settings without a file; ``{health}`` and ``{webhook}`` stand for the ports."""

    def settings(start: Start) -> tuple[list[str], None]:
        ports = {"health": start.health_port, "webhook": start.webhook_port}
        return [argument.format_map(ports) for argument in arguments], None

    return settings


def _namespace(name: str) -> JSON:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _named(kind: str, namespace: str, name: str, **more: Any) -> JSON:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


SERVING_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108
"""Where the operators of Kubeflow expect their Secret to be mounted; it cannot be configured."""

_IMAGES = {
    image: {"cmd": ["run"]} for image in ("argoproj/argosay:v2", "influxdb:1.2", "nginx:1.13")
}
"""The commands of images that Argo's examples do not name: it would read them from a registry."""

OPERATORS = (
    Operator(
        name="Argo Workflows",
        module="github.com/argoproj/argo-workflows/v3",
        version="v3.7.0",
        sum="h1:TDijZztm6dLruB7yZLH+Ps4OJKRwu0YSAJ4/NvceON0=",
        package="./cmd/workflow-controller",
        binary="workflow-controller",
        definitions="manifests/base/crds/minimal/argoproj.io_*.yaml",
        webhooks="",
        examples=("examples/*.yaml", "examples/container-set-template/*.yaml"),
        kinds=frozenset({"Workflow"}),
        settings=_flags(
            *("--namespace=argo", "--executor-image=argoexec"), *("--qps=100", "--burst=200")
        ),
        before=(
            _namespace("argo"),
            _named(
                "ConfigMap",
                "argo",
                "workflow-controller-configmap",
                data={"metricsConfig": "enabled: false\n", "images": json.dumps(_IMAGES)},
            ),
        ),
        ready=(6060, "/healthz"),
        environment={"LEADER_ELECTION_DISABLE": "true"},
        completes=True,
    ),
    Operator(
        name="JobSet",
        module="sigs.k8s.io/jobset",
        version="v0.8.0",
        sum="h1:80cJcPld+IMdKFOqzEW4et3Y6lGAPcP8YmBZ+aiKGYA=",
        package=".",
        binary="jobset",
        definitions="config/components/crd/bases/*.yaml",
        webhooks="config/components/webhook/manifests.yaml",
        examples=("site/static/examples/**/*.yaml",),
        kinds=frozenset({"JobSet"}),
        settings=_component_config("config.jobset.x-k8s.io/v1alpha1"),
    ),
    Operator(
        name="KubeRay",
        module="github.com/ray-project/kuberay/ray-operator",
        version="v1.4.2",
        sum="h1:A4tGzbIky8sInAUxZBdBb+rrpZ7fbqoxdsOtm559Zqg=",
        package=".",
        binary="ray-operator",
        definitions="config/crd/bases/*.yaml",
        webhooks="",
        examples=("config/samples/*.yaml",),
        kinds=frozenset({"RayCluster", "RayJob", "RayService"}),
        settings=_flags(
            *("--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:{health}"),
            *("--enable-leader-election=false", "--reconcile-concurrency=8"),
        ),
    ),
    Operator(
        name="LeaderWorkerSet",
        module="sigs.k8s.io/lws",
        version="v0.7.0",
        sum="h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=",
        package="./cmd",
        binary="cmd",
        definitions="config/crd/bases/*.yaml",
        webhooks="config/webhook/manifests.yaml",
        examples=("docs/examples/**/*.yaml", "config/samples/*.yaml"),
        kinds=frozenset({"LeaderWorkerSet"}),
        settings=_component_config("config.lws.x-k8s.io/v1alpha1"),
    ),
    Operator(
        name=KUEUE,
        module="sigs.k8s.io/kueue",
        version="v0.10.0",
        sum="h1:GDQlZbMLCyImRMIdlCO9yyI1JWoX+Ab6x9fodcJBva4=",
        package="./cmd/kueue",
        binary="kueue",
        definitions="config/components/crd/bases/*.yaml",
        webhooks="config/components/webhook/manifests.yaml",
        examples=(),
        kinds=frozenset({"Job"}),
        settings=_component_config(
            "config.kueue.x-k8s.io/v1beta1",
            # Its visibility server runs in a cluster only.
            ["--feature-gates=VisibilityOnDemand=false,TopologyAwareScheduling=true"],
            integrations={"frameworks": ["batch/job"]},
        ),
        served=frozenset({"jobs", "clusterqueues", "resourceflavors", "workloads"}),
    ),
    Operator(
        name="Kubeflow Trainer",
        module="github.com/kubeflow/trainer/v2",
        version="v2.0.0",
        sum="h1:mnQSR9iPKItxyUR8mq66XsmxqKNVHwr9YYOB7BTU9dU=",
        package="./cmd/trainer-controller-manager",
        binary="trainer-controller-manager",
        definitions="manifests/base/crds/trainer.kubeflow.org_*.yaml",
        webhooks="manifests/base/webhook/manifests.yaml",
        # Its examples are notebooks.
        examples=("trainjobs.yaml",),
        examples_in_module=False,
        kinds=frozenset({"TrainJob"}),
        settings=_flags(
            "--health-probe-bind-address=127.0.0.1:{health}", "--webhook-server-port={webhook}"
        ),
        requires=("JobSet",),
        before=(
            _namespace("kubeflow-system"),
            _named("Secret", "kubeflow-system", "kubeflow-trainer-webhook-cert"),
        ),
        after=("manifests/base/runtimes/**/*_*.yaml",),
        certificates=SERVING_CERTIFICATES,
        environment={"TMPDIR": str(SERVING_CERTIFICATES.parents[1])},
        completes=True,
    ),
    Operator(
        name="Kubeflow Training Operator",
        module="github.com/kubeflow/training-operator",
        version="v1.8.1",
        sum="h1:mVvoBSCInbMBX0gGSn4+Ihj3ycwoLO1iEAw+0qPhQfc=",
        package="./cmd/training-operator.v1",
        binary="training-operator.v1",
        definitions="manifests/base/crds/kubeflow.org_*.yaml",
        webhooks="manifests/base/webhook/manifests.yaml",
        examples=("examples/**/*.yaml",),
        kinds=frozenset({"MPIJob", "MXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"}),
        settings=_flags(
            *("--metrics-bind-address=127.0.0.1:0", "--controller-threads=8"),
            *("--health-probe-bind-address=127.0.0.1:{health}", "--webhook-server-port={webhook}"),
        ),
        before=(
            _namespace("kubeflow"),
            _named("Secret", "kubeflow", "training-operator-webhook-cert"),
        ),
        certificates=SERVING_CERTIFICATES,
        environment={"TMPDIR": str(SERVING_CERTIFICATES.parents[1])},
    ),
    Operator(
        name="MPI Operator",
        module="github.com/kubeflow/mpi-operator",
        version="v0.6.0",
        sum="h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys=",
        package="./cmd/mpi-operator",
        binary="mpi-operator",
        definitions="manifests/base/kubeflow.org_mpijobs.yaml",
        webhooks="",
        examples=("examples/v2beta1/**/*.yaml",),
        kinds=frozenset({"MPIJob"}),
        settings=_flags("--kube-api-qps=100", "--kube-api-burst=200"),
        before=(_namespace("mpi-operator"),),
        ready=(8080, "/healthz"),
    ),
)

"""The operators that the comparison runs: where their source is, and how they start.

Each is a Go module, in a pinned version. Its archive has the CustomResourceDefinitions, the webhook
configurations and the examples of that version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
    kinds: frozenset[str]
    """The kinds of the examples that make Pods by way of the operator."""
    settings: Callable[[Start], tuple[list[str], JSON | None]]
    served: frozenset[str] = frozenset()
    """The resources whose webhooks are registered; empty for all of them."""


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


def _kuberay(start: Start) -> tuple[list[str], None]:
    return [
        "--metrics-addr=127.0.0.1:0",
        f"--health-probe-bind-address=127.0.0.1:{start.health_port}",
        "--enable-leader-election=false",
    ], None


OPERATORS = (
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
        settings=_kuberay,
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
)

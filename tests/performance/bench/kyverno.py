"""Kyverno as a contestant, built from its Go module: its webhook, and its command line.

The webhook runs outside of the cluster, without reports and metrics.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.contestants import HOST, Contestant
from controlplane import binaries, cache
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import ENVIRONMENT, GoModule
from controlplane.ports import free_ports
from controlplane.process import Process

WANTED = os.environ.get("PEERS") == "kyverno"
VERSION = "v1.19.1"
KYVERNO = f"Kyverno {VERSION}"
CHECKING = Path(__file__).with_name("peers") / "kyverno-cli.yaml"
_ADMITTING = Path(__file__).with_name("peers") / "kyverno.yaml"
_MODULE = f"github.com/kyverno/kyverno@{VERSION}"
_SUM = "h1:/MkgFii3/VlQfKR1JpC9tVwNNVNQTt2S4U6qCsafsTU="
_PACKAGES = {"kyverno": "./cmd/kyverno", "kubectl-kyverno": "./cmd/cli/kubectl-kyverno"}
_NEEDED = "^kind: (Namespace|CustomResourceDefinition|ConfigMap|ServiceAccount)$"
_DEPLOYMENT = "kind: Deployment\nmetadata:\n  name: kyverno-admission-controller"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def source() -> Path:
    """Return the directory of Kyverno's module, downloaded once. Its own go.sum pins the rest.

    Raises:
        ControlPlaneError: the download failed, or is another module than the pinned one.
    """
    command: list[str | Path] = [binaries.go(), "mod", "download", "-json", _MODULE]
    done = subprocess.run(command, cwd="/", env=os.environ | ENVIRONMENT, capture_output=True)
    found = json.loads(done.stdout or "{}")
    if found.get("Sum") != _SUM:
        problem = found.get("Error") or done.stderr.decode() or f"its sum is {found['Sum']}"
        raise ControlPlaneError(f"{_MODULE} could not be downloaded: {problem}")
    return Path(found["Dir"])


def programs() -> dict[str, Path]:
    """Return the paths of `kyverno`, the webhook, and `kubectl-kyverno`; build them once.

    Raises:
        ControlPlaneError: no Go toolchain is available, or the build failed.
    """
    ldflags = f"-s -w -X github.com/kyverno/kyverno/pkg/version.BuildVersion={VERSION}"
    module = GoModule(source(), _PACKAGES, ldflags, f"{KYVERNO} (six minutes on two cores)")
    return module.binaries(_PACKAGES, cache.root().with_name("bench"))


def policies() -> list[dict[str, Any]]:
    """Return the policies that do what the other webhooks do."""
    return list(yaml.safe_load_all(_ADMITTING.read_text()))


@contextmanager
def running(cluster: ControlPlane, directory: Path) -> Iterator[Contestant]:
    """Run the webhook with the arguments of its installation, in this process' network.

    It registers itself with the API server when it has policies.
    """
    objects = (source() / "config" / "install-latest-testing.yaml").read_text().split("\n---\n")
    needed = [each for each in objects if re.search(_NEEDED, each, re.MULTILINE)]
    (deployment,) = (each for each in objects if re.search(_DEPLOYMENT, each))
    [container] = yaml.safe_load(deployment)["spec"]["template"]["spec"]["containers"]
    install = directory / "kyverno-install.yaml"
    install.write_text("\n---\n".join(needed))
    cluster.kubectl("apply", "--server-side", "-f", str(install))
    port, metrics = free_ports(2)
    command: list[str | Path] = [
        *(programs()["kyverno"], *container["args"], f"--kubeconfig={cluster.kubeconfig}"),
        *(f"--serverIP={HOST}:{port}", f"--webhookServerPort={port}", "--v=0"),
        *(f"--metricsPort={metrics}", "--disableMetrics", "--controllerRuntimeMetricsAddress=0"),
        *("--admissionReports=false", "--enableReporting="),
    ]
    environ = {each["name"]: each.get("value", "kyverno") for each in container["env"]}
    environ |= {"TUF_ROOT": str(directory)}
    process = Process(KYVERNO, command, directory / "kyverno.log", environ=os.environ | environ)

    def unregistered() -> str:
        registered = json.dumps(cluster.api.request("GET", _CONFIGURATIONS))
        return "" if "kyverno-policy" in registered else "its webhook configurations"

    process.start()
    try:
        process.wait(unregistered, within=120)
        yield Contestant(KYVERNO, process, port)
    finally:
        process.stop()

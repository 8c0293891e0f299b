"""The real helm, built from the pinned Go module in helm/ as the control plane is from its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from controlplane import binaries
from controlplane.gobuild import program
from controlplane.kubectl import GO
from paths import CHART
from policies.kubernetes.quantity import NANOS, parse_quantity

Object = dict[str, Any]
Values = dict[str, Any]
Result = subprocess.CompletedProcess[str]

# Most tests of the chart take no longer than to parse it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

VERSION = "v3.22.0"
RELEASE = "gpufence"
NAMESPACE = "gpufence-system"


class HelmError(Exception):
    """helm ended with another exit code than 0; the message is its own."""


def binary() -> Path:
    """Return the path of helm, having built it where the cache has none.

    The variables are those that helm's own Makefile sets. Left unset, it takes every cluster that
    it is not connected to for a Kubernetes 1.20.
    """
    major, minor, _ = binaries.VERSION.removeprefix("v").split(".")
    values = {"internal/version.version": VERSION}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    settings = [f"-X helm.sh/helm/v3/{name}={value}" for name, value in values.items()]
    directory, package = Path(__file__).with_name("helm"), "helm.sh/helm/v3/cmd/helm"
    return program("helm", directory, package, f"helm {VERSION}", " ".join(["-s", "-w", *settings]))


@dataclass(frozen=True)
class Helm:
    """Runs helm with a separate directory, never the user's, against one cluster or none."""

    binary: Path
    home: Path
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str, check: bool = True, timeout: float = 60.0) -> Result:
        """Run ``helm ARGUMENTS``.

        Raises:
            HelmError: the exit code is not 0, unless ``check`` is False.
        """
        result = subprocess.run(
            [self.binary, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=self.environ(),
        )
        if check and result.returncode:
            raise HelmError(f"helm {' '.join(arguments)}\n{result.stdout}{result.stderr}".rstrip())
        return result

    def with_values(
        self, command: tuple[str, ...], values: Values, *arguments: str, check: bool = True
    ) -> Result:
        """Run a command on the chart with ``values`` in a file of their own."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values, file)
            file.flush()
            return self(*command, str(CHART), "--values", file.name, *arguments, check=check)

    def text(self, values: Values, namespace: str = NAMESPACE) -> str:
        """Return the output of ``helm template``."""
        return _rendered(self, json.dumps(values, sort_keys=True), namespace)

    def objects(self, values: Values, namespace: str = NAMESPACE) -> list[Object]:
        """Return the objects that ``helm template`` prints."""
        return deepcopy(parsed(self.text(values, namespace)))

    def refusal(self, values: Values) -> str:
        """Return the error of ``helm template`` about ``values``."""
        result = self.with_values(("template", RELEASE), values, check=False)
        assert result.returncode, "helm accepts these values"
        return result.stderr

    def environ(self) -> dict[str, str]:
        """Return the environment that makes any helm use this directory and cluster."""
        own = {f"HELM_{kind}_HOME": str(self.home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        if self.kubeconfig is not None:
            own["KUBECONFIG"] = str(self.kubeconfig)
        return GO | os.environ | own


@cache
def _rendered(helm: Helm, values: str, namespace: str) -> str:
    """Cache the output, which many tests use."""
    command = ("template", RELEASE)
    return helm.with_values(command, json.loads(values), "--namespace", namespace).stdout


@cache
def parsed(rendered: str) -> list[Object]:
    """Return the objects of an output, for reading only."""
    return [obj for obj in yaml.load_all(rendered, _LOADER) if obj]


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    """Return the only object of a kind that is not the controller's, or the one of a name."""
    [match] = [
        obj
        for obj in objects
        if obj["kind"] == kind
        and (obj["metadata"]["name"] == name if name else not is_controllers(obj))
    ]
    return match


def is_controllers(obj: Object) -> bool:
    """Return whether an object belongs to the controller."""
    found: str = obj["metadata"]["name"]
    return found.endswith("-controller")


def memory(helm: Helm, values: Values) -> dict[str, int]:
    """Return request and limit of memory of a replica, in MiB."""
    [container] = one(helm.objects(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    resources = container["resources"]
    return {
        kind: parse_quantity(resources[kind]["memory"]) // NANOS // 2**20
        for kind in ("requests", "limits")
    }

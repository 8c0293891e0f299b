"""An operator: its source, its binary, and its process with definitions and webhooks."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from controlplane import cache, pki, toolchain
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import GoModule
from controlplane.poll import until
from controlplane.ports import free_ports
from controlplane.process import Process
from operators.catalog import Operator, Start

OLDEST_GO = (1, 26, 0)


def source_of(operator: Operator) -> Path:
    """Return the directory of the module in Go's module cache.

    Raises:
        ControlPlaneError: the module cannot be downloaded, or it is not the pinned one.
    """
    done = subprocess.run(
        [
            toolchain.go(OLDEST_GO),
            *("mod", "download", "-json", f"{operator.module}@{operator.version}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
        cwd="/",
    )
    module = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in module:
        problem = module.get("Error", done.stderr)
        raise ControlPlaneError(f"{operator.name} {operator.version}: {problem}")
    if module["Sum"] != operator.sum:
        raise ControlPlaneError(
            f"{operator.name} {operator.version}: the module's hash is {module['Sum']}, "
            f"but {operator.sum} is pinned"
        )
    return Path(module["Dir"])


def binary_of(operator: Operator) -> Path:
    """Return the operator's binary, built from its source if the cache does not have it.

    Raises:
        ControlPlaneError: the build failed.
    """
    what = f"{operator.name} {operator.version}"
    module = GoModule(source_of(operator), {operator.binary: operator.package}, "-s -w", what)
    root = cache.root().with_name("operators")
    return module.binaries([operator.binary], root)[operator.binary]


@contextmanager
def running(
    operator: Operator, cluster: ControlPlane, directory: Path, source: Path, binary: Path
) -> Iterator[None]:
    """Run the operator inside the block. It is a cluster administrator, and serves on loopback.

    Raises:
        ControlPlaneError: it does not start; the message shows the end of its log.
    """
    directory.mkdir()
    if operator.before:
        cluster.kubectl.apply(*operator.before)
    for file in sorted(source.glob(operator.definitions)):
        cluster.kubectl("apply", "--server-side", "-f", str(file))
    established = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    # Before a definition has a status, the wait fails.
    until(
        lambda: cluster.kubectl(*established, check=False).returncode == 0, "the definitions", 60.0
    )
    authority = pki.Authority(directory)
    certificates = operator.certificates or directory / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    pair = authority.server("operator", "127.0.0.1", "localhost")
    for file, name in zip(pair, ("tls.crt", "tls.key"), strict=True):
        shutil.copy(file, certificates / name)
    start = Start(directory, certificates, *free_ports(2))
    arguments, config = operator.settings(start)
    if config is not None:
        (directory / "config.yaml").write_text(yaml.safe_dump(config))
    process = Process(
        operator.name,
        [binary, *arguments],
        directory / "operator.log",
        environ=os.environ
        | {"KUBECONFIG": str(cluster.kubeconfig), "TMPDIR": str(directory)}
        | operator.environment,
    )
    port, path = operator.ready
    configurations: list[dict[str, Any]] = []
    process.start()
    try:
        process.wait(lambda: _unready(port or start.health_port, path))
        if operator.webhooks:
            # Kueue is ready before its webhooks are.
            process.wait(lambda: _closed(start.webhook_port))
            text = (source / operator.webhooks).read_text()
            bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
            for configuration in yaml.safe_load_all(text):
                _make_local(configuration, operator, start.webhook_port, bundle)
                configurations.append(configuration)
            cluster.kubectl.apply(*configurations)
        for file in (file for pattern in operator.after for file in sorted(source.glob(pattern))):
            cluster.kubectl("apply", "--server-side", "-f", str(file))
        yield
    except Exception:
        cache.say(f"the log of {operator.name} ends with:\n{process.tail()}")
        raise
    finally:
        for configuration in configurations:
            kind, name = configuration["kind"], configuration["metadata"]["name"]
            cluster.kubectl("delete", kind, name, check=False)
        process.stop()
        shutil.rmtree(certificates)


@contextmanager
def succeeding(cluster: ControlPlane) -> Iterator[None]:
    """Have each Pod succeed a moment after its creation, as if a kubelet ran it."""
    stop = threading.Event()

    def succeed() -> None:
        while not stop.wait(0.5):
            pods = cluster.api.request("GET", "/api/v1/pods?fieldSelector=status.phase%3DPending")
            for pod in pods["items"]:
                _succeed(cluster, pod)

    thread = threading.Thread(target=succeed, name="kubelet")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _succeed(cluster: ControlPlane, pod: dict[str, Any]) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    terminated = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": terminated,
        }
        for container in pod["spec"]["containers"]
    ]
    with suppress(ApiError):  # The Pod is gone.
        cluster.api.request(
            "PATCH",
            f"/api/v1/namespaces/{namespace}/pods/{name}/status",
            {"status": {"phase": "Succeeded", "containerStatuses": statuses}},
            "application/merge-patch+json",
        )


def _make_local(configuration: dict[str, Any], operator: Operator, port: int, bundle: str) -> None:
    """Change a webhook configuration to call a port of this machine, not a Service."""
    configuration["metadata"]["name"] += f"-{operator.binary}"
    configuration["webhooks"] = [
        webhook
        for webhook in configuration["webhooks"]
        if not operator.served or operator.served.issuperset(webhook["rules"][0]["resources"])
    ]
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}


def _closed(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return ""
    except OSError as error:
        return f"port {port}: {error}"


def _unready(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except OSError as error:
        return f"{path}: {error}"
    finally:
        connection.close()
    return "" if status == http.HTTPStatus.OK else f"{path}: {status}"

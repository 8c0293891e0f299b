"""Warnings in place of denials on a real API server: of modes, and of a stricter profile."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import Any

import yaml

from controlplane.cluster import ControlPlane
from controlplane.fence import running
from controlplane.objects import TOLERATION, pod
from controlplane.poll import until
from controlplane.webhooks import apply, unregister
from paths import PROJECT
from specs import default_spec, policy_of
from webhook.controller.text.objects import Registration, configurations

PODS = "/api/v1/namespaces/{}/pods"
HUNG = re.compile(r"(?m)^\| ([\w ]+) \| (created|rejected) (.+?) \| (created) (.+?) \|$")
"""A row of the table about replicas that hang: the outcome in enforce, and in the other modes."""


def test_a_hung_replica_delays_pods_as_the_page_says(control_plane: ControlPlane) -> None:
    selecting = pod()
    selecting["spec"]["nodeSelector"] = {"example.com/zone": "a"}
    pods = {
        "plain": pod(),
        "requests a GPU": pod({"nvidia.com/gpu": 1}),
        "selects nodes": selecting,
    }
    page = (PROJECT / "docs/operate/break-glass.md").read_text()
    said = {row[0]: (row[1:3], row[3:5]) for row in HUNG.findall(page)}
    assert said.keys() == pods.keys()
    path = PODS.format("default")

    def tried(name: str) -> tuple[str, str]:
        start = time.monotonic()
        refused = control_plane.api.refusal(path, pods[name])
        waited = int(time.monotonic() - start)
        print(f"{mode}, {name}: {time.monotonic() - start:.1f} s {refused[:60]}")
        return "rejected" if refused else "created", f"after {waited} s" if waited else "at once"

    with socket.create_server(("127.0.0.1", 0)) as hung:
        registration = Registration(url=f"https://127.0.0.1:{hung.getsockname()[1]}")
        try:
            for mode in ("enforce", "audit", "warn"):
                policy = policy_of(default_spec() | {"mode": mode})
                apply(control_plane.api, configurations(policy, registration))
                # The API server notices new configurations with a delay, and may be busy.
                for name, rows in said.items():
                    outcome = rows[mode != "enforce"]
                    until(lambda: tried(name) == outcome, f"{mode}, {name}: {outcome}")  # noqa: B023
        finally:
            unregister(control_plane)


def test_only_the_namespace_with_mode_enforce_is_fenced_and_waits_for_a_replica(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    api, gpu_pod, trespasser = control_plane.api, pod({"nvidia.com/gpu": 1}), pod()
    trespasser["spec"]["tolerations"] = [TOLERATION]
    audited, enforced = (
        PODS.format(control_plane.create_namespace(f"{name}-")) for name in ("audited", "enforced")
    )
    spec = default_spec() | {"mode": "audit"}
    # The probe for active webhooks is created in the namespace default.
    namespaces = [enforced.split("/")[4], "default"]
    spec["overrides"] = [{"namespaces": namespaces, "mode": "enforce"}]
    with running(control_plane, tmp_path, spec) as fence, fence.registered():
        stored = [
            api.request("POST", f"{path}?dryRun=All", gpu_pod)["spec"]
            for path in (audited, enforced)
        ]
        assert [TOLERATION in spec["tolerations"] for spec in stored] == [False, True]
        assert ["affinity" in spec for spec in stored] == [False, True]
        assert not api.refusal(audited, trespasser)
        assert "pool-trespass" in api.refusal(enforced, trespasser)
        recorded = 'gpufence_findings_total{action="would_enforce",rule="pool-trespass"}'
        assert fence.server.metric(recorded) >= 1

        fence.register("https://127.0.0.1:1")
        try:
            waits = "failed calling webhook"
            until(lambda: waits in api.refusal(enforced, gpu_pod), "the outage")
            assert not api.refusal(audited, gpu_pod)
        finally:
            fence.register()


def test_a_profile_that_only_warns_warns_as_pod_security_does_and_denies_nothing(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    warn, version = "pod-security.kubernetes.io/warn", "v1.33"
    labels = {warn: "restricted", f"{warn}-version": version}
    namespace = control_plane.create_namespace("warned-", labels)
    hardening = {"level": "baseline", "warn": "restricted", "version": version}
    of_a_pod: dict[str, Any] = {
        "nothing": {},
        "root": {"securityContext": {"runAsUser": 0}},
        "an NFS volume": {"volumes": [{"name": "a", "nfs": {"server": "nfs", "path": "/"}}]},
        "a host path": {"volumes": [{"name": "a", "hostPath": {"path": "/data"}}]},
        "a sysctl of 1.37": {
            "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_notsent_lowat", "value": "1"}]}
        },
    }
    found = {}
    spec = default_spec() | {"hardening": hardening}
    with running(control_plane, tmp_path, spec) as fence, fence.registered():
        for name, fields in of_a_pod.items():
            made = {"apiVersion": "v1", "kind": "Pod", **pod({"nvidia.com/gpu": 1})}
            made["spec"] |= fields
            arguments = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
            done = control_plane.kubectl(*arguments, stdin=yaml.safe_dump(made), check=False)
            own = done.stderr.count("Warning: unrestricted-gpu-pod: ")
            [official] = re.findall(f'PodSecurity "restricted:{version}": (.*)', done.stderr)
            is_denied = f'Pod Security "baseline" of version {version} accepts' in done.stderr
            assert is_denied == bool(done.returncode), done.stderr
            found[name] = (own, official.count("), ") + 1, is_denied)
    print(found)
    # A control that denies does not warn as well.
    assert found == {
        "nothing": (4, 4, False),
        "root": (5, 5, False),
        "an NFS volume": (5, 5, False),
        "a host path": (4, 5, True),
        "a sysctl of 1.37": (4, 5, True),
    }

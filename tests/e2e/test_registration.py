"""Registering a webhook, and the word that comes back when the API server cannot reach it."""

from __future__ import annotations

import pytest

from controlplane import webhooks
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.ports import free_ports


def test_registration_of_an_unreachable_webhook_reports_the_connection_error(
    control_plane: ControlPlane,
) -> None:
    [port] = free_ports(1)
    authority = (control_plane.directory / "ca.crt").read_bytes()
    try:
        with pytest.raises(TimeoutError, match=r"failed calling webhook.*connection refused"):
            webhooks.register(control_plane, f"https://127.0.0.1:{port}", authority, within=5)
    finally:
        webhooks.unregister(control_plane)
    answer = control_plane.kubectl("create", "configmap", "probe", "--dry-run=server")
    assert answer.stdout == "configmap/probe created (server dry run)\n"


def test_the_api_server_accepts_and_keeps_the_sample_configuration(
    control_plane: ControlPlane,
) -> None:
    wanted = webhooks.configurations("https://webhook.example:9443", b"a certificate")
    assert [each["kind"] for each in wanted] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    for configuration in wanted:
        created = control_plane.api.request(
            "POST",
            "/apis/admissionregistration.k8s.io/v1/"
            f"{configuration['kind'].lower()}s?dryRun=All&fieldValidation=Strict",
            configuration,
        )
        for sent, kept in zip(configuration["webhooks"], created["webhooks"], strict=True):
            assert {key: kept[key] for key in sent} == sent


def test_only_a_registered_webhook_is_called(
    control_plane: ControlPlane, gpufence_server: Server, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    def tolerated() -> set[str]:
        created = control_plane.api.request("POST", pods, webhooks.GPU_POD)
        return {toleration["key"] for toleration in created["spec"]["tolerations"]}

    for _ in range(2):
        webhooks.register(control_plane, gpufence_server.url, gpufence_server.authority)
        assert "nvidia.com/gpu" in tolerated()
        webhooks.unregister(control_plane)
        assert "nvidia.com/gpu" not in tolerated()

"""The chart's whole output before the real API server, which judges every field of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controlplane.cluster import ControlPlane
from controlplane.objects import RESTRICTED, definition
from deploy.chart import NAMESPACE, RELEASE, Helm, Values
from deploy.variants import VARIANTS
from paths import CHART, DEPLOY

PROMETHEUS, CERT_MANAGER = "monitoring.coreos.com", "cert-manager.io"


def crd(group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a CustomResourceDefinition of another project, cut down to what is used here."""
    spec_schema = {"type": "object", **spec}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec_schema}}
    return definition(group, "v1", kind, schema=schema)


STRING = {"type": "string"}
STRINGS = {"type": "object", "additionalProperties": STRING}
RULE = {
    "type": "object",
    "required": ["alert", "expr"],
    "properties": {
        "alert": STRING,
        "expr": STRING,
        "for": {"type": "string", "pattern": "^[0-9]+(s|m|h)$"},
        "labels": STRINGS,
        "annotations": STRINGS,
    },
}
ENDPOINT = {
    "type": "object",
    "properties": {
        "port": STRING,
        "path": STRING,
        "interval": STRING,
    },
}
CRDS = (
    crd(
        PROMETHEUS,
        "ServiceMonitor",
        {
            "required": ["selector", "endpoints"],
            "properties": {
                "selector": {"type": "object", "properties": {"matchLabels": STRINGS}},
                "endpoints": {"type": "array", "items": ENDPOINT},
            },
        },
    ),
    crd(
        PROMETHEUS,
        "PrometheusRule",
        {
            "properties": {
                "groups": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "rules"],
                        "properties": {"name": STRING, "rules": {"type": "array", "items": RULE}},
                    },
                }
            },
        },
    ),
    crd(
        CERT_MANAGER,
        "Certificate",
        {
            "required": ["secretName", "issuerRef"],
            "properties": {
                "secretName": STRING,
                "dnsNames": {"type": "array", "items": STRING},
                "usages": {"type": "array", "items": STRING},
                "privateKey": {"type": "object", "properties": {"rotationPolicy": STRING}},
                "issuerRef": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": STRING, "kind": STRING, "group": STRING},
                },
            },
        },
    ),
)


@pytest.fixture(scope="module")
def prepared(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with the release's namespace, and the kinds of other projects."""
    with control_plane.defined(*CRDS):
        control_plane.create_namespace(NAMESPACE, RESTRICTED)
        yield control_plane
        control_plane.kubectl("delete", "namespace", NAMESPACE)


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_api_server_accepts_every_object_without_a_warning(
    prepared: ControlPlane, helm: Helm, values: Values
) -> None:
    applied = prepared.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "--filename", "-"),
        stdin=helm.text(values),
    )
    assert len(applied.stdout.splitlines()) == len(helm.objects(values))
    # A Namespace that was created without kubectl lacks its annotation.
    warnings = [line for line in applied.stderr.splitlines() if "last-applied" not in line]
    if values.get("hostNetwork"):
        assert ["hostNetwork=true" in line for line in warnings] == [True], warnings
    else:
        # The restricted profile, which the namespace requires, would reject no Pod either.
        assert not warnings


def test_the_api_server_reports_an_unknown_field(prepared: ControlPlane, helm: Helm) -> None:
    spoilt = helm.text({}).replace("enableServiceLinks:", "enableServiceLink:")
    output = prepared.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "--filename", "-"),
        stdin=spoilt,
        check=False,
    )
    assert 'unknown field "spec.template.spec.enableServiceLink"' in output.stderr


def test_server_side_apply_of_install_yaml_has_no_warning(prepared: ControlPlane) -> None:
    manifest = DEPLOY / "install.yaml"
    command = ("apply", "--server-side", "--dry-run=server", "--filename", str(manifest))
    assert not prepared.kubectl(*command).stderr


@pytest.mark.parametrize("namespace", [NAMESPACE, "default"])
def test_helm_install_warns_about_unreviewed_pods_in_namespace_default(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    dry_run = ("install", RELEASE, str(CHART), "--dry-run", "--namespace", namespace)
    shown = replace(helm, kubeconfig=control_plane.kubeconfig)(*dry_run).stdout
    warned = "does not review Pods in the namespace default" in shown.partition("NOTES:")[2]
    assert warned == (namespace == "default")

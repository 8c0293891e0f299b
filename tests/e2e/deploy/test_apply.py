"""The chart's whole output before the real API server, which judges every field of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controlplane import policies
from controlplane.cluster import ControlPlane
from controlplane.kubectl import as_list
from controlplane.objects import RESTRICTED, definition
from deploy.chart import NAMESPACE, RELEASE, Helm
from deploy.variants import VARIANTS
from paths import CHART, DEPLOY

PROMETHEUS, CERT_MANAGER = "monitoring.coreos.com", "cert-manager.io"


STRING = {"type": "string"}
STRINGS = {"type": "object", "additionalProperties": STRING}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object: the fields that it must have, and all that it may have."""
    return {"type": "object", "required": list(required), "properties": properties}


def items(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


RULE = fields(
    *("alert", "expr"),
    alert=STRING,
    expr=STRING,
    labels=STRINGS,
    annotations=STRINGS,
    **{"for": {"type": "string", "pattern": "^[0-9]+(s|m|h)$"}},
)
SPECS = {
    (PROMETHEUS, "ServiceMonitor"): fields(
        *("selector", "endpoints"),
        selector=fields(
            matchLabels=STRINGS,
            matchExpressions=items(
                fields(*("key", "operator"), key=STRING, operator=STRING, values=items(STRING))
            ),
        ),
        endpoints=items(fields(port=STRING, path=STRING, interval=STRING)),
    ),
    (PROMETHEUS, "PrometheusRule"): fields(
        groups=items(fields("name", "rules", name=STRING, rules=items(RULE)))
    ),
    (CERT_MANAGER, "Certificate"): fields(
        *("secretName", "issuerRef"),
        secretName=STRING,
        dnsNames=items(STRING),
        usages=items(STRING),
        privateKey=fields(rotationPolicy=STRING),
        issuerRef=fields("name", name=STRING, kind=STRING, group=STRING),
    ),
}
"""The specs of other projects' custom resources, cut down to what the chart uses."""
CRDS = tuple(
    definition(group, "v1", kind, schema=fields("spec", spec=spec))
    for (group, kind), spec in SPECS.items()
)


@pytest.fixture(scope="module")
def prepared(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with the release's namespace, and the kinds of its custom resources."""
    policies.define(control_plane)
    with control_plane.defined(*CRDS):
        control_plane.create_namespace(NAMESPACE, RESTRICTED)
        yield control_plane
        control_plane.delete_namespaces(NAMESPACE)


@pytest.mark.slow("applies the objects of every variant of the chart")
def test_the_api_server_accepts_every_object_without_a_warning(
    prepared: ControlPlane, helm: Helm
) -> None:
    rendered = [obj for values in VARIANTS.values() for obj in helm.objects(values)]
    different = {json.dumps(obj, sort_keys=True): obj for obj in rendered}
    applied = prepared.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "--filename", "-"),
        stdin=as_list(tuple(different.values())),
        timeout=200,
    )
    assert len(applied.stdout.splitlines()) == len(different)
    # A Namespace that was created without kubectl lacks its annotation.
    warnings = [line for line in applied.stderr.splitlines() if "last-applied" not in line]
    # The restricted profile, which the namespace requires, would reject no other Pod either.
    assert ["hostNetwork=true" in line for line in warnings] == [True], warnings


def test_server_side_apply_of_install_yaml_has_no_warning(prepared: ControlPlane) -> None:
    manifest = DEPLOY / "install.yaml"
    command = ("apply", "--server-side", "--dry-run=server", "--filename", str(manifest))
    assert not prepared.kubectl(*command).stderr


def test_an_upgrade_keeps_the_content_of_both_secrets(prepared: ControlPlane, helm: Helm) -> None:
    """Also of those that an earlier controller has created, with a type of its own."""
    secrets = [obj for obj in helm.objects({}) if obj["kind"] == "Secret"]
    data = {"tls.crt": "", "tls.key": "", "ca.crt": "eA=="}
    kinds = zip(secrets, ("Opaque", "kubernetes.io/tls"), strict=True)
    before = [{**obj, "type": kind, "data": data} for obj, kind in kinds]
    for obj in before:
        obj["metadata"] = {**obj["metadata"], "labels": {"app.kubernetes.io/name": "gpufence"}}
    prepared.kubectl.create(*before)
    for flags in ((), (), ("--server-side", "--force-conflicts"), ()):
        prepared.kubectl("apply", *flags, "--filename", "-", stdin=as_list(tuple(secrets)))
        found = prepared.kubectl.json("get", "secrets", "--namespace", NAMESPACE)["items"]
        assert [(obj["type"], obj["data"]) for obj in found] == [
            (obj["type"], obj["data"]) for obj in before
        ]
    prepared.kubectl("delete", "--filename", "-", stdin=as_list(tuple(secrets)))


ENFORCE = """kubectl patch fencepolicy gpufence --type merge -p '{"spec":{"mode":"enforce"}}'"""
NOTES = {
    "replicas=2": ("Mode enforce", "run as user 65532", "GPU Pods, and Pods that set nodeName"),
    "policy.mode=audit,policy.hardening.runAsUser=1000": (
        *("Mode audit", "records what", "run as user 1000", ENFORCE),
    ),
    "policy.mode=warn": ("Mode warn", "warns of what", ENFORCE),
    "policy.hardening.runAsUser=none,policy.failurePolicy=Ignore": (
        *("They keep their user", "GPU Pods are created without what gpufence adds"),
    ),
    "policy.create=false": ("It follows the FencePolicy gpufence", "kubectl apply -f"),
}
"""What an installation says, by its values."""


def test_helm_install_says_what_changes_and_what_to_do_next(
    prepared: ControlPlane, helm: Helm
) -> None:
    run = replace(helm, kubeconfig=prepared.kubeconfig)
    install = ("install", RELEASE, str(CHART), "--dry-run", "--disable-openapi-validation")
    for values, said in NOTES.items():
        notes = run(*install, "--namespace", NAMESPACE, "--set", values).stdout.partition("NOTES:")
        assert all(" ".join(each.split()) in " ".join(notes[2].split()) for each in said), notes[2]
        assert "does not review Pods in the namespace default" not in notes[2]
    shown = run(*install, "--namespace", "default").stdout.partition("NOTES:")[2]
    assert "does not review Pods in the namespace default" in shown

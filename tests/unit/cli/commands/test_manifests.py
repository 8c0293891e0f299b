"""The commands about registration, as far as they need no cluster."""

from __future__ import annotations

import base64
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from certificates import issue
from fake_apiserver import FakeApiServer
from policies.policy import ALWAYS_EXCLUDED
from running import Run

SERVICE = ("--service", "gpufence-system/gpufence")


def test_manifests_prints_both_configurations_for_a_service(gpufence: Run, tmp_path: Path) -> None:
    issue(["gpufence.gpufence-system.svc"], tmp_path)
    authority = tmp_path / "ca.crt"
    done = gpufence(
        "manifests",
        *SERVICE,
        "--ca-file",
        authority,
        "--annotation",
        "a=b=c",
        "--fence-policy",
        "own",
    )
    assert done.status == 0
    mutating, validating = yaml.safe_load_all(done.out)
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    assert (mutating["kind"], validating["kind"]) == kinds
    service = {"namespace": "gpufence-system", "name": "gpufence", "port": 443}
    for configuration in (mutating, validating):
        annotations = {"a": "b=c", "gpufence.dev/fence-policy": "own"}
        assert configuration["metadata"]["annotations"] == annotations
        for webhook in configuration["webhooks"]:
            config = webhook["clientConfig"]
            assert base64.b64decode(config["caBundle"]) == authority.read_bytes()
            assert config["service"].items() >= service.items()


def test_manifests_with_cert_manager_have_the_annotation_and_no_ca_bundle(gpufence: Run) -> None:
    done = gpufence("manifests", *SERVICE, "--cert-manager", "gpufence-system/serving")
    assert done.status == 0
    for configuration in yaml.safe_load_all(done.out):
        annotations = configuration["metadata"]["annotations"]
        assert annotations == {
            "cert-manager.io/inject-ca-from": "gpufence-system/serving",
            "gpufence.dev/fence-policy": "",
        }
        assert all("caBundle" not in w["clientConfig"] for w in configuration["webhooks"])


@pytest.mark.parametrize("command", [["doctor"], ["audit"]])
def test_a_missing_kubeconfig_or_context_is_an_error(
    gpufence: Run, tmp_path: Path, command: list[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    done = gpufence(*command, "--kubeconfig", kubeconfig)
    assert done.status == 2
    assert f"{kubeconfig}: no such file" in done.err
    FakeApiServer().kubeconfig(kubeconfig)
    done = gpufence(*command, "--kubeconfig", kubeconfig, "--context", "other")
    assert done.status == 2
    assert f"{kubeconfig}: has no context other; it has " in done.err


def test_manifests_prints_admission_policies_with_excluded_namespaces(gpufence: Run) -> None:
    done = gpufence("manifests", "--admission-policies", "--exclude-namespace", "fence")
    assert done.status == 0
    by_kind = defaultdict[str, list[Any]](list)
    for document in yaml.safe_load_all(done.out):
        by_kind[document["kind"]].append(document["spec"])
    assert by_kind.keys() == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    for spec in by_kind["ValidatingAdmissionPolicy"]:
        [selector] = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert selector["operator"] == "NotIn"
        assert {"fence", *ALWAYS_EXCLUDED} <= {*selector["values"]}

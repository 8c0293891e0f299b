"""The doctor's checks of what it has read, in addition to those of a real installation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from certs.authority import create_authority, issue_leaf
from deciding import policy
from webhook.controller.certificates import name_of
from webhook.controller.text.objects import POLICY_KIND
from webhook.tools.doctor import DoctorLine
from webhook.tools.doctor.checks import diagnosis
from webhook.tools.doctor.installation import Deployed, Installation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AUTHORITY = create_authority(NOW)


def line(check: str, **found: Any) -> DoctorLine:
    """Return the line of a check of an installation with these fields."""
    return next(
        each
        for each in diagnosis(Installation("fence", "gpufence", NOW, **found))
        if each.check == check
    )


def test_old_versions_and_missing_claims_are_reported(subtests: pytest.Subtests) -> None:
    for version, claims, status, found in (
        ("v1.36.3", ("v1",), "ok", "v1.36.3"),
        ("v1.34.10-gke.1000", ("v1", "v1beta2"), "ok", "v1.34.10-gke.1000"),
        ("v1.30.14", (), "ok", "v1.30.14, without dynamic resource allocation"),
        ("v1.33.2", ("v1beta2", "v1beta1"), "warn", "only as v1beta2, v1beta1: a Pod that"),
        ("v1.29.9", (), "fail", "v1.29.9 is older than 1.30"),
        ("", (), "skip", "the version of the API server is unknown"),
        ("devel", (), "skip", "it says 'devel'"),
    ):
        with subtests.test(version=version):
            made = line("Kubernetes", version=version, claim_versions=claims)
            assert made.status == status
            assert found in made.detail
            assert bool(made.remediation) == (status in ("warn", "fail"))


def test_names_for_which_the_policy_is_relaxed_need_the_guard() -> None:
    relaxed = policy(overrides=[{"namespaces": ["a", "play-*"], "mode": "audit"}])
    for expression, status, unguarded in (
        ('object.metadata.name in ["a", "play-*"]', "ok", ""),
        ('object.metadata.name in ["a", "play-2"]', "warn", "in namespaces play-*, and"),
        (None, "warn", "in namespaces a, play-*, and"),
    ):
        guard = {"spec": {"variables": [{"expression": expression}]}}
        live = {POLICY_KIND: {"gpufence-namespace-guard": guard} if expression else {}}
        found = line("namespace guard", policy=relaxed, live=live)
        assert found.status == status
        assert unguarded in found.detail
    for other in (
        policy(),
        policy(mode="audit", exceptions=[{"namespaces": ["a"], "reason": "a"}]),
    ):
        lines = diagnosis(Installation("fence", "gpufence", NOW, policy=other))
        assert "namespace guard" not in {each.check for each in lines}


def test_a_controller_that_is_not_ready_is_a_warning(subtests: pytest.Subtests) -> None:
    pod = {"containers": [{"name": "gpufence", "image": "gpufence:0.2.0"}]}
    for ready, status in ((1, "ok"), (0, "warn")):
        with subtests.test(ready=ready):
            controller = {"spec": {"template": {"spec": pod}}, "status": {"readyReplicas": ready}}
            found = line("controller", controller=controller)
            assert found.status == status
            assert ("image.repository" in found.remediation) is not bool(ready)


def registered(url: str) -> dict[str, Any]:
    """Return a webhook configuration."""
    return {"webhooks": [{"name": "pods.gpufence.dev", "clientConfig": {"url": f"{url}/mutate"}}]}


def test_a_certificate_without_the_registered_host_fails(subtests: pytest.Subtests) -> None:
    for url, names, missing in (
        ("https://10.0.0.7:8443", ["10.0.0.7"], ""),
        ("https://10.0.0.7:8443", ["10.0.0.8"], "10.0.0.7"),
        ("https://10.0.0.7:8443", ["fence.example"], "10.0.0.7"),
        ("https://[fd00::7]:8443", ["fd00:0:0:0:0:0:0:7"], ""),
        ("https://[fd00::7]:8443", ["10.0.0.7"], "fd00::7"),
        ("https://fence.example", ["fence.example", "10.0.0.7"], ""),
        ("https://fence.example", ["10.0.0.7"], "fence.example"),
    ):
        with subtests.test(url=url, missing=missing):
            live = {"ValidatingWebhookConfiguration": {"gpufence": registered(url)}}
            address = Installation("fence", "gpufence", live=live).address
            assert address is not None
            found = line(
                "certificate",
                deployed=Deployed(address, "serving"),
                called=name_of(address),
                secret={},
                leaf=issue_leaf(AUTHORITY, names, NOW),
                signer=AUTHORITY.certificate_pem,
            )
            assert found.status == ("fail" if missing else "ok")
            assert not missing or found.detail == f"the serving certificate lacks {missing}"


def test_the_placeholder_image_is_named_when_no_replica_runs(subtests: pytest.Subtests) -> None:
    images = {"gpufence:0.2.0": True, "registry.example:5000/gpufence:0.2.0": False, "": False}
    for image, hinted in images.items():
        with subtests.test(image=image):
            pod = {"containers": [{"name": "gpufence", "image": image}]}
            deployment = {"spec": {"replicas": 2, "template": {"spec": pod}}, "status": {}}
            found = line("replicas", deployment=deployment)
            assert found.status == "fail"
            assert ("image.repository" in found.remediation) is hinted


def test_controllers_with_one_account_are_named() -> None:
    found = line("controller manager", has_shared_account=True)
    assert found.status == "warn"
    assert "unless its user is system:kube-controller-manager" in found.detail
    lines = diagnosis(Installation("fence", "gpufence", NOW))
    assert "controller manager" not in {each.check for each in lines}

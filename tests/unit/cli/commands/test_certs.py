"""`gpufence certs`: files that are issued, and the state of the Secret of replicas."""

from __future__ import annotations

import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, Names, parse_certificates
from certs.secret import Stored, read_secret, write_secret
from fake_apiserver import FakeKubeApi
from policies.shipped import shipped_policy
from running import Run
from webhook.controller.cel.configurations import Registration, configurations
from webhook.controller.certificates import SecretName
from webhook.controller.registrar import KINDS
from webhook.tools.cli.commands.certs import publish_next, shown

ISSUE = ("certs", "issue", "--ip", "127.0.0.1", "--dns-name", "localhost", "--out", "certs")


def test_issue_writes_and_lists_four_files(gpufence: Run, tmp_path: Path) -> None:
    done = gpufence(*ISSUE)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(
        "Wrote ca.crt, ca.key, tls.crt and tls.key to certs, for localhost, 127.0.0.1; "
    )
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "certs").iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o644, "tls.key": 0o600}


def test_issue_replaces_files_only_with_force(gpufence: Run, tmp_path: Path) -> None:
    gpufence(*ISSUE)
    before = (tmp_path / "certs" / "ca.crt").read_bytes()
    done = gpufence(*ISSUE)
    assert (done.status, done.out) == (2, "")
    assert "certs: already holds ca.crt, ca.key, tls.crt, tls.key." in done.err
    assert (tmp_path / "certs" / "ca.crt").read_bytes() == before
    assert gpufence(*ISSUE, "--force").status == 0
    assert (tmp_path / "certs" / "ca.crt").read_bytes() != before


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--out", "certs"], "there is neither a DNS name nor an IP address"),
        (["--out", "certs", "--dns-name", "*.example"], "is not a host name (RFC 1123)"),
        (["--out", "certs", "--ip", "10.0.0.0/8"], "is neither an IPv4 nor an IPv6 address"),
        (["--out", "certs", "--dns-name", "x", "--days", "99", "--ca-days", "9"], "longer than"),
        (["--dns-name", "x"], "Missing option '--out'"),
    ],
)
def test_issue_rejects_invalid_arguments_with_a_reason(
    gpufence: Run, tmp_path: Path, args: list[str], error: str
) -> None:
    done = gpufence("certs", "issue", *args)
    assert (done.status, done.out) == (2, "")
    assert error in done.err
    assert not (tmp_path / "certs").exists()


# The Secret.

NOW = datetime.now(UTC)
SECRET = SecretName("fence", "certificates")
AUTHORITY, OTHER = create_authority(NOW), create_authority(NOW)
NAMES = Names.parse(["gpufence.fence.svc"])
LEAF = issue_leaf(AUTHORITY, NAMES, NOW)


def cluster(stored: Stored) -> FakeKubeApi:
    """Return one with this Secret, and configurations with its CA."""
    api = FakeKubeApi()
    api.objects[SECRET.path] = write_secret(stored, SECRET.name, SECRET.namespace, None)
    registration = Registration(
        service=("fence", "gpufence", 443),
        ca_bundle=base64.b64encode(AUTHORITY.certificate_pem).decode(),
    )
    for configuration in configurations(shipped_policy(), registration):
        api.objects[f"{KINDS[configuration['kind']]}/gpufence"] = configuration
    return api


BROKEN = {
    "a certificate of another CA": (
        Stored(AUTHORITY, issue_leaf(OTHER, NAMES, NOW)),
        "problem: serving certificate is not signed by a current CA",
    ),
    "a key of another certificate": (
        Stored(AUTHORITY, KeyPair(LEAF.certificate_pem, OTHER.key_pem)),
        "problem: private key does not belong to serving certificate",
    ),
    "an invalid CA certificate": (
        Stored(KeyPair(b"none", AUTHORITY.key_pem), LEAF),
        "MutatingWebhookConfiguration gpufence, pods.gpufence.dev: DOES NOT TRUST the CA",
    ),
}


async def test_a_certificate_that_the_webhook_configurations_trust_is_healthy() -> None:
    api = cluster(Stored(AUTHORITY, LEAF))
    assert await shown(api, SECRET.namespace, SECRET.name, "gpufence")


@pytest.mark.parametrize(("stored", "expected"), BROKEN.values(), ids=BROKEN)
async def test_an_untrusted_certificate_is_reported(
    stored: Stored, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not await shown(cluster(stored), SECRET.namespace, SECRET.name, "gpufence")
    assert expected in capsys.readouterr().out


async def test_expiry_is_determined_by_the_clock_of_the_api_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The clock of the machine with the command line may be wrong."""
    api = cluster(Stored(AUTHORITY, LEAF))
    api.now = NOW + timedelta(days=400)
    assert not await shown(api, SECRET.namespace, SECRET.name, "gpufence")
    assert " EXPIRED, " in capsys.readouterr().out


async def test_the_next_ca_is_valid_by_the_clock_of_the_api_server() -> None:
    api = cluster(Stored(AUTHORITY, LEAF))
    api.now = NOW - timedelta(days=400)
    api.objects[SECRET.path]["metadata"]["resourceVersion"] = "1"
    await publish_next(api, SECRET.namespace, SECRET.name, timedelta(days=10))
    stored = read_secret(api.objects[SECRET.path])
    assert stored is not None
    [certificate] = parse_certificates(stored.next_certificate, "test")
    assert certificate.not_valid_before_utc < api.now < certificate.not_valid_after_utc

"""`gpufence certs issue` and `gpufence serve`, one after the other as a user would."""

from __future__ import annotations

import json
import signal
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from controlplane.gpufence import COMMAND
from running import Run

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


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--tls-cert", "x", "--tls-key", "y"], "x: does not exist."),
        (
            ["--tls-cert", "x", "--tls-key", "y", "--policy", "nowhere.yaml"],
            "nowhere.yaml: does not exist.",
        ),
        (["--tls-cert", "x", "--tls-key", "y", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_serve_rejects_invalid_arguments_with_a_reason(
    gpufence: Run, args: list[str], error: str
) -> None:
    done = gpufence("serve", *args)
    assert done.status == 2
    assert error in done.err
    assert "Traceback" not in done.err


def test_serve_answers_requests_and_exits_0_on_sigterm(gpufence: Run, tmp_path: Path) -> None:
    gpufence(*ISSUE)
    policy = gpufence("policy", "show").out
    (tmp_path / "policy.yaml").write_text(policy)
    command: list[str | Path] = [
        *(COMMAND, "serve", "--policy", "policy.yaml"),
        *("--tls-cert", "certs/tls.crt", "--tls-key", "certs/tls.key", "--host", "127.0.0.1"),
        *("--port", "0", "--metrics-port", "0"),
        *("--drain-seconds", "0"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr)
        ready = next(event for event in events if event["event"] == "ready")
        assert ready["policy"] == "policy.yaml"
        trusted = ssl.create_default_context(cafile=tmp_path / "certs" / "ca.crt")
        request = urllib.request.Request(
            f"https://127.0.0.1:{ready['port']}/mutate", data=b"{}", method="POST"
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, context=trusted)  # noqa: S310
        assert refused.value.code in (400, 415)
        refused.value.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

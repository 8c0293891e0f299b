"""`gpufence serve` with the files of `gpufence certs issue`."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from controlplane.gpufence import COMMAND
from running import Run

ISSUE = ("certs", "issue", "--ip", "127.0.0.1", "--dns-name", "localhost", "--out", "certs")


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

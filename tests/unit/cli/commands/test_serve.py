"""`gpufence serve` with the files of `gpufence certs issue`."""

from __future__ import annotations

import pytest

from running import Run


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

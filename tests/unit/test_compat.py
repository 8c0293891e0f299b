"""`make compat` accepts releases of Kubernetes only."""

from __future__ import annotations

import pytest

import compat


@pytest.mark.parametrize("version", ["", "1.34.2", "v1.34", "v1.37.0-alpha.1", "latest"])
def test_what_is_not_a_release_is_rejected(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compat.main([version] if version else []) == 1
    assert "is not a release of Kubernetes: use v1.MINOR.PATCH" in capsys.readouterr().err

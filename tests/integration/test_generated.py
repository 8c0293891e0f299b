"""The generated files are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

import generate
import render
from deploy.chart import Helm
from paths import PROJECT


@pytest.mark.parametrize("path", generate.texts(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_generated_file_is_up_to_date(path: Path) -> None:
    message = f"{path.relative_to(PROJECT)} is stale: run `make generate`, and read the diff"
    assert path.read_text() == generate.texts()[path], message


def test_install_yaml_is_up_to_date(helm: Helm) -> None:
    message = "deploy/install.yaml is stale: run `make render`, and read the diff"
    assert render.INSTALL.read_text() == render.install_text(helm), message

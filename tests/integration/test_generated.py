"""The generated files are up to date."""

from __future__ import annotations

import generate
import render
from deploy.chart import Helm


def test_the_generated_files_are_up_to_date() -> None:
    stale = [path for path, text in generate.texts().items() if path.read_text() != text]
    assert stale == [], "run `make generate`, and read the diff"


def test_install_yaml_is_up_to_date(helm: Helm) -> None:
    message = "deploy/install.yaml is stale: run `make render`, and read the diff"
    assert render.INSTALL.read_text() == render.install_text(helm), message

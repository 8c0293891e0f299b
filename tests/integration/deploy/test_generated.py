"""What is written by `make render` is what it would write now."""

from __future__ import annotations

import render
from deploy.chart import Helm
from paths import PROJECT

CURE = "run `make render`, and read the diff"


def test_the_charts_generated_parts_are_in_step() -> None:
    for path, text in render.texts().items():
        assert path.read_text() == text, f"{path.relative_to(PROJECT)}: {CURE}"


def test_install_yaml_is_what_the_chart_renders(helm: Helm) -> None:
    assert (render.DEPLOY / "install.yaml").read_text() == render.install_text(helm), CURE

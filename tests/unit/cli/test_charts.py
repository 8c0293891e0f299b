"""Directories that are Helm charts: rendered with helm, or answered with the command to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from running import PLAIN_POD, TRESPASSER, Run


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return a chart; its templates are no YAML."""
    chart = tmp_path / "web"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n")
    (chart / "templates" / "web.yaml").write_text("{{ if }}\n")
    return chart


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program that stands for helm; what it prints is in the file ``rendered``."""
    program = tmp_path / "bin" / "helm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat {tmp_path}/rendered\n')
    program.chmod(0o755)
    (tmp_path / "rendered").write_text(f"# Source: web/templates/web.yaml\n{TRESPASSER}")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


@pytest.mark.usefixtures("helm", "chart")
def test_a_chart_is_rendered_and_checked(gpufence: Run, tmp_path: Path) -> None:
    done = gpufence("check", "web")
    assert done.status == 1
    assert done.out.startswith("denied   Deployment default/web  <helm template web>:2\n")
    assert (tmp_path / "arguments").read_text() == "template -- web\n"
    annotation = gpufence("check", "-o", "github", "web").out
    assert "file=" not in annotation
    assert "::<helm template web>:10: " in annotation


@pytest.mark.usefixtures("helm", "chart")
def test_a_chart_in_a_subdirectory_is_rendered_and_can_be_excluded(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "apps.yaml").write_text(PLAIN_POD)
    report = gpufence("check", "-o", "json", ".").report
    paths = [result["source"]["path"] for result in report["results"]]
    assert paths == ["apps.yaml", "<helm template web>"]
    assert gpufence("check", "--exclude", "web", ".").status == 0


@pytest.mark.usefixtures("chart")
def test_a_chart_without_helm_is_an_error_with_the_command_to_run(
    gpufence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = gpufence("check", "-o", "json", "web")
    problem = "is a Helm chart, and helm is not in PATH"
    cure = "Where helm is installed, run helm template web | gpufence check -"
    assert (done.status, done.err) == (2, f"Error: web: {problem}. {cure}.\n")


@pytest.mark.usefixtures("chart")
def test_a_chart_that_helm_cannot_render_is_an_error(gpufence: Run, helm: Path) -> None:
    helm.write_text('#!/bin/sh\necho "Error: values: image.tag is required" >&2\nexit 1\n')
    done = gpufence("check", "web")
    assert done.status == 2
    assert "cannot be rendered with its default values: values: image.tag is required." in done.out

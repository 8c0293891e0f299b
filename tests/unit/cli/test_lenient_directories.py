"""Templates and patches in directories: skipped with a note, and errors with --strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from running import GPU_POD, PLAIN_POD, Run

TEMPLATE = "apiVersion: v1\nkind: Pod\nmetadata: {{ .Values.metadata }}\n"
PATCH = "kind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n"
PLACEHOLDER = GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: ${GPUS}")
NOTES = {
    "template.yaml": (TEMPLATE, "is a template, with placeholders such as {{ }}"),
    "patch.yaml": (PATCH, "has no apiVersion, as a patch may"),
    "placeholder.yaml": (
        PLACEHOLDER,
        "spec.containers[0].resources.limits[nvidia.com/gpu] is the placeholder ${GPUS}",
    ),
}


@pytest.fixture(params=NOTES)
def skipped(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return the name of a file in the directory apps, and the note about it."""
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "pod.yaml").write_text(PLAIN_POD)
    text, note = NOTES[request.param]
    (tmp_path / "apps" / request.param).write_text(text)
    return request.param, note


def test_a_template_or_patch_in_a_directory_is_skipped_with_a_note(
    gpufence: Run, skipped: tuple[str, str]
) -> None:
    name, note = skipped
    done = gpufence("check", "apps")
    assert done.status == 0
    assert done.err == (
        "Note: skipped 1 document with placeholders or without apiVersion. "
        "To report them as errors, add --strict.\n"
    )
    [line] = [line for line in done.out.splitlines() if f"apps/{name}:" in line]
    assert line.startswith("skipped  ")
    assert line.endswith(f"  {note}")
    report = gpufence("check", "-o", "json", "apps").report
    assert [result["note"] for result in report["results"] if "note" in result] == [note]


def test_a_template_or_patch_is_an_error_with_strict_or_as_argument(
    gpufence: Run, skipped: tuple[str, str]
) -> None:
    name, _ = skipped
    assert gpufence("check", "--strict", "apps").status == 2
    assert gpufence("check", f"apps/{name}").status == 2
    assert gpufence("mutate", "apps").status == 2


def test_an_invalid_file_in_a_directory_is_an_error(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    for name, text in (("a", "a: [\n"), ("b", GPU_POD.replace("gpu: 1", "gpu: many"))):
        (tmp_path / "apps" / "pod.yaml").write_text(text)
        done = gpufence("check", "apps")
        assert (name, done.status, done.err) == (name, 2, "")

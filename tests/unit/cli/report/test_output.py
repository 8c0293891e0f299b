"""``--output``: several reports of one run, in files and streams, and places that are rejected."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import yaml

from running import FAULTS, PLAIN_POD, TRESPASSER, Run, assert_golden, run_command, write_policy
from webhook.tools.cli import report
from webhook.tools.cli.report import output as outputs
from webhook.tools.cli.report.output import FORMATS

CHECK = FORMATS["check"]


def test_each_format_is_the_function_of_a_command_in_a_module() -> None:
    names = [module.name for module in iter_modules(report.__path__)]
    modules = {name: import_module(f"{report.__name__}.{name}") for name in names}
    found = {c: {n for n in names if hasattr(modules[n], c)} for c in FORMATS}
    assert found == {command: {*formats} for command, formats in FORMATS.items()}


GOLDEN = Path(__file__).with_name("check")


@pytest.mark.parametrize("name", sorted({*CHECK} - {"html"}))
def test_the_report_of_each_format_is_as_expected(gpufence: Run, tmp_path: Path, name: str) -> None:
    shutil.copy(GOLDEN / "manifests.yaml", tmp_path)
    write_policy(tmp_path, end=(GOLDEN / "policy-end.yaml").read_text())
    files = ("manifests.yaml", "missing.yaml")
    done = gpufence("check", "--output", name, "--policy", "policy.yaml", *files)
    assert done.status == 2
    report = done.out
    if name == "sarif":
        log = done.report
        del log["runs"][0]["tool"]  # The pages of the rules, and the version.
        report = json.dumps(log, indent=2) + "\n"
    assert_golden(GOLDEN / f"report.{name}", report)


def test_a_report_file_equals_the_report_on_standard_output(gpufence: Run, tmp_path: Path) -> None:
    shown, printed, written = {}, {}, {}
    for name in CHECK:
        shown[name] = gpufence("check", "-o", name, "-", stdin=FAULTS).out
        printed[name] = gpufence("check", "-o", f"{name}=-", "-", stdin=FAULTS).out
        gpufence("check", "-o", f"{name}=report", "-", stdin=FAULTS)
        written[name] = (tmp_path / "report").read_text()
    assert printed == written == shown


def test_a_long_read_is_logged_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with outputs.reading(enabled=True) as progress:
        for now in (1.0, 9.0, 11.0, 12.0, 25.0):
            progress("pods", round(now * 100))
    assert capsys.readouterr().err == "Reading pods: 1,100\nReading pods: 2,500\n"


def test_an_unwritable_report_file_is_an_error_before_the_check_starts(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "folder").mkdir()
    for path, problem in {
        "out/report.sarif": "directory out does not exist. Create it.",
        "folder": "is a directory. Name a file in it.",
        "x" * 300: "cannot be written (File name too long). Name another file.",
    }.items():
        with subtests.test(path=path):
            done = gpufence("check", "-o", "text", "-o", f"sarif={path}", "-", stdin=TRESPASSER)
            assert (done.status, done.out, done.err) == (2, "", f"Error: {path}: {problem}\n")


def test_an_interrupted_run_keeps_the_previous_report(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    report = tmp_path / "report.json"
    report.write_text("before")
    report.chmod(0o640)
    monkeypatch.setattr("webhook.tools.cli.evaluate.judged", fail)
    assert gpufence("check", "-o", "json=report.json", "-", stdin=PLAIN_POD).status == 130
    assert report.read_text() == "before"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert gpufence("check", "-o", "json=report.json", "-", stdin=PLAIN_POD).status == 0
    assert json.loads(report.read_text())["summary"]["allowed"] == 1
    assert report.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [report]


def test_reports_are_written_through_symbolic_and_hard_links(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("behind")
    (tmp_path / "one").write_text("a longer text than any report is" * 1000)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    done = gpufence("check", "-o", "json=link", "-o", "sarif=two", "-", stdin=PLAIN_POD)
    assert done.status == 0
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "behind").read_text())["summary"]["allowed"] == 1
    assert json.loads((tmp_path / "one").read_text())["version"] == "2.1.0"


def test_reports_are_written_to_devices_and_pipes(gpufence: Run, tmp_path: Path) -> None:
    done = gpufence("check", "-o", "json=/dev/stdout", "-o", "text=/dev/null", "-", stdin=PLAIN_POD)
    assert (done.status, done.verdicts) == (0, ["allowed"])
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert gpufence("check", "-o", "json=pipe", "-", stdin=PLAIN_POD).status == 0
        assert reader.stdout is not None
        assert json.load(reader.stdout)["summary"]["allowed"] == 1
    ran = run_command("check", "-o", "json=/dev/stderr", "-", stdin=PLAIN_POD.encode())
    assert json.loads(ran.err)["summary"]["allowed"] == 1


def test_a_report_that_would_overwrite_an_input_is_rejected(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu"}}
    policy = gpufence("policy", "show").out
    texts = {"web.yaml": TRESPASSER, "policy.yml": policy, "nodes.json": json.dumps(node)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("web.yaml")
    before = sorted(tmp_path.iterdir())
    for output, over, *args in (
        ("sarif=web.yaml", "web.yaml", "web.yaml"),
        ("sarif=./web.yaml", "web.yaml", "."),
        ("sarif=link", "web.yaml", "web.yaml"),
        ("text=policy.yml", "policy.yml", "--policy", "policy.yml", "web.yaml"),
        ("text=nodes.json", "nodes.json", "--nodes", "nodes.json", "web.yaml"),
    ):
        with subtests.test(output=output):
            done = gpufence("check", "-o", "json=other.json", "-o", output, *args)
            assert (done.status, done.out) == (2, "")
            problem = f"--output {output} overwrites the input {over}. Name another file"
            assert problem in " ".join(done.err.split())
            assert sorted(tmp_path.iterdir()) == before
            assert {name: (tmp_path / name).read_text() for name in texts} == texts


def test_an_audit_report_that_would_overwrite_an_input_is_rejected(
    gpufence: Run, tmp_path: Path
) -> None:
    for name, option in (("policy.yaml", "--policy"), ("config", "--kubeconfig")):
        (tmp_path / name).write_text("kept")
        done = gpufence("audit", "-o", f"json={name}", option, name)
        assert (done.status, (tmp_path / name).read_text()) == (2, "kept")
        assert f"overwrites the input {name}" in " ".join(done.err.split())


# Control characters of both ranges, marks and overrides of the direction of writing, and
# invisible characters.
ACTING = (
    "\x1b\x07\x00\x7f\x9b\u061c\u200e\u200f\u202a\u202e\u2028\u2066\u2067\u2068\u2069"
    "\ufeff\U000e0041"
)
HOSTILE = f"{ACTING}[2J"
RAW = re.compile(f"[{ACTING}]")
GPU = "nvidia.com/gpu"
CONTAINER = {"name": HOSTILE, "image": HOSTILE}
TRESPASSER_SPEC = {
    "nodeName": HOSTILE,
    "containers": [{**CONTAINER, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": HOSTILE}]}],
    "tolerations": [{"key": GPU, "operator": "Exists", "value": HOSTILE}],
    "volumes": [{"name": HOSTILE, "hostPath": {"path": f"/dev/nvidia0{HOSTILE}"}}],
}
SPECS = (
    TRESPASSER_SPEC,
    {"containers": [{**CONTAINER, "resources": {"limits": {GPU: 1}}}]},
    {"containers": [{**CONTAINER, "resources": {"limits": {GPU: HOSTILE}}}]},
    {"containers": HOSTILE},
)


def hostile_manifests() -> str:
    """Return Pods that are denied, mutated and invalid, other objects, and a broken document."""
    names = {"name": HOSTILE, "namespace": HOSTILE, "labels": {HOSTILE: HOSTILE}}
    objects = [{"apiVersion": "v1", "kind": "Pod", "metadata": names, "spec": s} for s in SPECS]
    objects += [{**objects[0], "apiVersion": HOSTILE, "kind": HOSTILE}, {"kind": HOSTILE}]
    return "\n---\n".join([*map(json.dumps, objects), "a: [\u202e"])


def texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON document."""
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from texts(entry)
    elif isinstance(value, str):
        yield value


def test_no_report_prints_characters_that_act_on_a_terminal(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    path = f"{HOSTILE.replace(chr(0), '')}.yaml"
    (tmp_path / path).write_text(hostile_manifests())
    for name in CHECK:
        with subtests.test(name=name):
            done = gpufence("check", "--output", name, path)
            assert done.status == 2
            assert RAW.findall(done.out) == RAW.findall(done.err) == []
            assert "\\u202e" in done.out
            if name == "sarif":  # Its texts are for people.
                assert not any(map(RAW.search, texts(json.loads(done.out))))
            if name == "json":  # Its texts are those of the manifest.
                assert HOSTILE in {
                    result["object"]["name"] for result in done.report["results"][:4]
                }


def test_mutated_manifests_have_escapes_for_characters_that_act_on_a_terminal(
    gpufence: Run,
) -> None:
    # The second value needs no quotes but for its one character.
    metadata = {"name": HOSTILE, "annotations": {"a": "a\u202eb"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPECS[1]}
    done = gpufence("mutate", "-", stdin=json.dumps(pod))
    assert done.status == 0
    assert RAW.findall(done.out) == []
    assert yaml.safe_load(done.out)["metadata"]["name"] == HOSTILE

"""The report for people, pinned line by line, and how it looks on terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controlplane.gpufence import COMMAND
from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.editor import Operation
from running import BROKEN, CONFIG_MAP, GPU_POD, PLAIN_POD, TRESPASSER, Run
from webhook.cli.manifests.evaluate import Result
from webhook.cli.report import text
from webhook.cli.report.content import CheckReport
from webhook.documents.documents import explanation, read_documents
from webhook.documents.errors import ManifestError
from webhook.documents.objects import Manifest, read_objects
from webhook.wording import printable

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def manifests(source: str) -> list[Manifest]:
    return [m for d in read_documents("a.yaml", source) for m in read_objects(d)]


def lines(*results: Result) -> list[str]:
    content = CheckReport(results, "default", datetime(2026, 1, 1, tzinfo=UTC))
    return [line.text for line in text.check(content)]


def value(one: Manifest) -> dict[str, Any]:
    assert one.value is not None
    return one.value


def test_errors_of_invalid_list_items_have_the_line_of_the_item(gpufence: Run) -> None:
    items = ["kind: Pod", "1", "{apiVersion: v1, kind: List, items: 1}"]
    source = "\n  - ".join(["apiVersion: v1\nkind: List\nitems:", *items])
    shown = gpufence("check", "-", stdin=source).out.splitlines()
    places = [re.search(r"<stdin>:(\d+)", line) for line in shown]
    assert [place[1] for place in places if place] == ["4", "4", "5", "5", "6", "6"]


def test_a_finding_has_position_path_reason_detail_and_remediation() -> None:
    (one,) = manifests(TRESPASSER)
    findings = (
        Finding(
            "pool-trespass",
            "spec.template.spec.tolerations[0]",
            "it trespasses",
            "it tolerates the taint",
            "Remove the toleration",
        ),
        Finding("device-leak", "spec.template.spec.hostPID", "it leaks", "GPUs", action="warn"),
    )
    decision = Decision(value(one), findings=findings, pools=("nvidia", "amd"))
    assert lines(Result(one, "denied", decision, "default")) == [
        "denied   Deployment default/web  a.yaml:1  requests devices of pool nvidia, amd",
        "  enforce  pool-trespass  a.yaml:9  spec.template.spec.tolerations[0]",
        "    it trespasses: it tolerates the taint.",
        "    remediation: Remove the toleration.",
        # The field is not there: the line is that of the nearest thing that is.
        "  warn  device-leak  a.yaml:7  spec.template.spec.hostPID",
        "    it leaks: GPUs.",
        "",
        "1 object: 1 denied; 1 warning (policy: default)",
        "Explain the rule: gpufence explain pool-trespass",
        "Explain the rule: gpufence explain device-leak",
    ]


def test_a_mutation_is_shown_as_a_diff_with_context_lines() -> None:
    (one,) = manifests(GPU_POD)
    before = value(one)
    decision = Decision(before, (Operation("/spec/tolerations", [{"operator": "Exists"}]),))
    assert lines(Result(one, "mutated", decision, "ml")) == [
        "mutated  Pod ml/train  a.yaml:1",
        "  @@",
        "       resources:",
        "         limits:",
        "           nvidia.com/gpu: 1",
        "  +  tolerations:",
        "  +  - operator: Exists",
        "",
        "1 object: 1 mutated (policy: default)",
    ]


def test_a_workload_without_a_template_is_reported() -> None:
    (patch,) = manifests("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n")
    skipped = Decision(value(patch), has_template=False)
    first, *_ = lines(Result(patch, "skipped", skipped))
    assert first == "skipped  Deployment web  a.yaml:1  has no pod template, as if it were a patch"


def test_objects_without_details_are_listed_without_blank_lines() -> None:
    plain, settings, values = manifests(f"{PLAIN_POD}---\n{CONFIG_MAP}---\nreplicas: 3\n")
    exempt = Decision(value(plain), exemption="the policy exempts namespace x")
    skipped = Decision(value(settings), has_template=False)
    assert lines(
        Result(plain, "allowed", exempt, "x"),
        Result(settings, "skipped", skipped),
        Result(values, "skipped"),
    ) == [
        "allowed  Pod x/web  a.yaml:1  exempt: the policy exempts namespace x",
        "skipped  ConfigMap settings  a.yaml:10",
        "skipped  document 3  a.yaml:17  not a Kubernetes object",
        "",
        "3 objects: 1 allowed, 2 skipped (policy: default)",
    ]


def test_an_error_is_shown_with_position_and_remediation() -> None:
    (one,) = manifests(BROKEN)
    error = one.error
    assert error is not None
    assert lines(Result(one, "invalid", error=error)) == [
        "invalid  document 1  a.yaml:1",
        f"  a.yaml:4:1: {explanation(one.document, error)}",
        "",
        "1 object: 1 invalid (policy: default)",
    ]


def test_excepted_findings_are_listed() -> None:
    (one,) = manifests(TRESPASSER)
    finding = Finding("pool-trespass", "spec.x", "it trespasses", "detail")
    decision = Decision(value(one), excepted=(finding,))
    assert lines(Result(one, "allowed", decision, "default"))[1] == (
        "  excepted  pool-trespass  it trespasses (at spec.x)"
    )


def test_control_characters_of_a_manifest_are_escaped() -> None:
    (one,) = manifests(
        'apiVersion: v1\nkind: Pod\nmetadata: {name: "a\\e[2J\\nb\\u202e"}\nspec: {}\n'
    )
    finding = Finding("device-leak", "spec[\x1b]", "\x07", "\x9b", "\u2028")
    decision = Decision(value(one), findings=(finding,))
    shown = lines(Result(one, "denied", decision, "ns"))
    assert shown[0] == r"denied   Pod ns/a\x1b[2J\nb\u202e  a.yaml:1"
    assert all(line.isprintable() for line in shown)


@pytest.mark.parametrize(
    "hidden",
    [
        *("\xad", "\u061c", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u202a"),
        *("\u202b", "\u202c", "\u202d", "\u202e", "\u2060", "\u2064", "\u2066", "\u2067", "\u2068"),
        *("\u2069", "\u206f", "\ufeff", "\ufffb", "\U000e0001", "\U000e007f"),
    ],
    ids=ascii,
)
def test_invisible_and_bidirectional_characters_are_shown_as_escapes(
    hidden: str,
) -> None:
    assert printable(f"web{hidden}") == "web" + ascii(hidden)[1:-1]


@pytest.mark.parametrize("text", ["größe", "東京", "العربية", "a\u00a0b"])
def test_unicode_text_stays_unchanged(text: str) -> None:
    assert printable(text) == text


def test_a_path_with_a_colon_or_a_space_is_not_escaped(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a b:c.yaml").write_text(PLAIN_POD)
    assert gpufence("check", "a b:c.yaml").out.splitlines()[0] == (
        "allowed  Pod default/web  a b:c.yaml:1"
    )


def test_check_prints_the_report_of_all_documents(gpufence: Run) -> None:
    done = gpufence("check", "-", stdin=f"{GPU_POD}---\n{PLAIN_POD}---\n{CONFIG_MAP}")
    shown = done.out.splitlines()
    assert shown[0] == "mutated  Pod ml/train  <stdin>:1  requests devices of pool nvidia"
    assert "  +  tolerations:" in shown
    assert shown[-4:] == [
        "allowed  Pod default/web  <stdin>:14",
        "skipped  ConfigMap settings  <stdin>:23",
        "",
        "3 objects: 1 mutated, 1 allowed, 1 skipped (policy: default)",
    ]


def on_terminal(columns: int, *args: str, **environ: str) -> tuple[int, str]:
    """Run the command with a terminal as its output; return status and what was written."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [COMMAND, *args],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.PIPE,
        env=inherited | {"TERM": "xterm-256color"} | environ,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        written += part
    os.close(master)
    _, err = process.communicate()
    assert err == b""
    return process.returncode, written.decode().replace("\r\n", "\n")


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    path = tmp_path / "mixed.yaml"
    path.write_text("---\n".join([TRESPASSER, GPU_POD, BROKEN, CONFIG_MAP]))
    return str(path)


def test_output_on_a_terminal_is_colored(mixed: str) -> None:
    status, shown = on_terminal(200, "check", mixed)
    assert status == 2
    assert "\x1b[1;31mdenied" in shown
    assert "\x1b[32m+  tolerations:\x1b[0m" in shown
    plain = ESCAPE.sub("", shown)
    assert "\x1b" not in plain
    piped = subprocess.run([COMMAND, "check", mixed], capture_output=True, check=False, text=True)
    assert plain.split() == piped.stdout.split()


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_and_a_dumb_terminal_disable_color(mixed: str, environ: dict[str, str]) -> None:
    _, shown = on_terminal(200, "check", mixed, **environ)
    assert "\x1b" not in shown


def test_the_color_option_overrides_the_environment(mixed: str) -> None:
    assert "\x1b" not in on_terminal(200, "check", "--color", "never", mixed)[1]
    assert "\x1b[" in on_terminal(200, "check", "--color", "always", mixed, NO_COLOR="1")[1]
    piped = subprocess.run(
        [COMMAND, "check", "--color", "always", mixed], capture_output=True, check=False, text=True
    )
    assert "\x1b[1;31mdenied" in piped.stdout


def test_force_color_colors_standard_output_but_not_report_files(
    gpufence: Run, mixed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31mdenied" in gpufence("check", mixed).out
    assert "\x1b[" in gpufence("explain", "device-leak").out
    assert "\x1b" not in gpufence("check", "--color", "never", mixed).out
    gpufence("check", "--output", "text=report.txt", mixed)
    assert "\x1b" not in (tmp_path / "report.txt").read_text()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in gpufence("check", mixed).out


def test_narrow_terminals_wrap_between_words_and_keep_the_indent(mixed: str) -> None:
    _, shown = on_terminal(60, "check", mixed)
    plain = ESCAPE.sub("", shown).splitlines()
    start = next(i for i, line in enumerate(plain) if "pool-trespass" in line) + 1
    start = next(i for i in range(start, len(plain)) if plain[i].startswith("    "))
    paragraph = plain[start : start + 3]
    assert all(line.startswith("    ") and len(line) <= 60 for line in paragraph)
    assert all(line == line.rstrip() for line in plain)


def test_a_terminal_one_column_wide_is_supported(mixed: str) -> None:
    status, shown = on_terminal(1, "check", mixed)
    assert status == 2
    assert "denied" in ESCAPE.sub("", shown)


def test_check_exits_141_without_a_message_if_the_pipe_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("---\n".join([GPU_POD] * 2000))
    process = subprocess.Popen(
        [COMMAND, "check", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("count", [1, 2000])
def test_output_to_a_full_device_is_an_error(tmp_path: Path, count: int) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join([GPU_POD] * count))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "check", path], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "Error: the output cannot be written (No space left on device). "
        "Free disk space, or write to another place.\n"
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_above_the_file_size_limit_is_an_error(tmp_path: Path, unbuffered: str) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join([GPU_POD] * 200))
    done = subprocess.run(
        [
            "sh",
            "-c",
            'ulimit -f 8; "$1" mutate "$2" > "$3"',
            "sh",
            COMMAND,
            path,
            tmp_path / "made",
        ],
        capture_output=True,
        text=True,
        check=False,
        # The limit would cut off the bytecode of modules, and break every later import.
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stderr) == (
        2,
        (
            "Error: the output cannot be written (File too large). Free disk space, or write to "
            "another place.\n"
        ),
    )


def test_output_to_a_closed_terminal_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(GPU_POD)
    ours, its = pty.openpty()
    os.close(ours)
    done = subprocess.run(
        [COMMAND, "check", path], stdout=its, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(its)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: the output cannot be written (Input/output error). Write to another place.\n",
    )


def test_nonblocking_pipes_are_set_to_blocking() -> None:
    (stdin, write), (read, stdout) = os.pipe(), os.pipe()
    for end in (stdin, stdout):
        os.set_blocking(end, False)
    os.write(write, TRESPASSER.encode())
    os.close(write)
    subprocess.run([COMMAND, "check", "-"], stdin=stdin, stdout=stdout, check=False)
    # Every process that shares the pipe sees what is set.
    assert os.get_blocking(stdin)
    assert os.get_blocking(stdout)
    assert os.read(read, 65_536).endswith(b"gpufence explain pool-trespass\n")
    for end in (stdin, stdout, read):
        os.close(end)


@pytest.mark.parametrize(
    ("closed", "shown"), [(">&-", ""), ("2>&-", "gpufence explain pool-trespass\n")]
)
def test_closed_output_streams_are_skipped(tmp_path: Path, closed: str, shown: str) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(TRESPASSER)
    done = subprocess.run(
        ["sh", "-c", f'"$1" check "$2" {closed}', "sh", COMMAND, path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith(shown)


def test_characters_that_the_output_encoding_lacks_are_escaped() -> None:
    settings = CONFIG_MAP.replace("name: settings", "name: größe")
    done = subprocess.run(
        [COMMAND, "check", "-"],
        input=settings.encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert rb"ConfigMap gr\xf6\xdfe" in done.stdout


def test_an_error_without_a_line_has_the_line_of_its_document() -> None:
    (document,) = read_documents("a.yaml", '{"apiVersion": "v1", "kind": "Pod", "x": "\\ud800"}')
    (one,) = read_objects(document)
    assert isinstance(one.error, ManifestError)
    assert lines(Result(one, "invalid", error=one.error))[1].startswith(
        "  a.yaml:1: document 1: has half of a surrogate pair"
    )

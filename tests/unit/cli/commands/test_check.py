"""`gpufence check`: its exit status, and its messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from policies.policy import ALWAYS_EXCLUDED
from running import (
    BROKEN,
    CONFIG_MAP,
    GPU_POD,
    NO_QUANTITY,
    PLAIN_POD,
    TRESPASSER,
    Outcome,
    Run,
    manifest,
)


def test_the_exit_status_depends_on_the_verdict(gpufence: Run) -> None:
    texts = (PLAIN_POD, GPU_POD, CONFIG_MAP, TRESPASSER, NO_QUANTITY, BROKEN)
    runs = [gpufence("check", "--output", "json", "-", stdin=text) for text in texts]
    of_sound = [(0, ["allowed"]), (0, ["mutated"]), (0, ["skipped"]), (1, ["denied"])]
    assert [(run.status, run.verdicts) for run in runs] == [*of_sound, *[(2, ["invalid"])] * 2]


def test_directories_are_read_recursively_in_order_and_hidden_files_are_listed(
    gpufence: Run, tmp_path: Path
) -> None:
    names = ["b.yml", "a/z.json", "a/y.yaml", "c.txt", ".hidden.yaml", ".git/x.yaml", "a-b/x.yaml"]
    for name in names:
        path = tmp_path / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAIN_POD)
    done = gpufence("check", "--output", "json", "manifests", "manifests/b.yml")
    results = done.report["results"]
    assert [(result["source"]["path"], result["verdict"]) for result in results] == [
        ("manifests/.hidden.yaml", "skipped"),
        ("manifests/a/y.yaml", "allowed"),
        ("manifests/a/z.json", "allowed"),
        ("manifests/a-b/x.yaml", "allowed"),
        ("manifests/b.yml", "allowed"),
    ]


def test_a_directory_without_manifests_is_an_error(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = gpufence("check", "empty")
    assert done.status == 2
    assert (
        "empty: is a directory without manifests (.yaml, .yml, .json). "
        "Name the directory or the files that hold them." in done.out
    )


def test_no_objects_are_an_error(gpufence: Run, subtests: pytest.Subtests) -> None:
    for text in ("", "# nothing\n", "---\n---\n", "null\n", "{kind: List, items: []}"):
        with subtests.test(text=text):
            done = gpufence("check", "-", stdin=text)
            assert done.status == 2
            assert done.err == "Error: no objects in <stdin>. Check the tool that wrote them.\n"


def test_allow_empty_accepts_files_without_objects(gpufence: Run, tmp_path: Path) -> None:
    for name in ("a.yaml", "folder/b.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# nothing\n")
    done = gpufence("check", "a.yaml", "folder")
    cure = "Check the tool that wrote them, or add --allow-empty."
    assert (done.status, done.err) == (2, f"Error: no objects in a.yaml, folder. {cure}\n")
    (tmp_path / "empty").mkdir()
    done = gpufence("check", "--allow-empty", "a.yaml", "folder", "empty")
    assert (done.status, done.out, done.err) == (0, "0 objects (policy: default)\n", "")


def test_an_empty_pipe_is_an_error_even_with_allow_empty(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n")
    done = gpufence("check", "--allow-empty", "a.yaml", "-", stdin="")
    problem = "no objects in a.yaml, <stdin>. Check the tool that wrote them."
    assert (done.status, done.err) == (2, f"Error: {problem}\n")


def test_unreadable_files_are_reported_with_remediation(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(PLAIN_POD)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    link = "Make the link point to a file."
    problems = {
        f"{'x' * 300}.yaml": "cannot be read (File name too long). Check the path.",
        "pod.yaml/x": "cannot be read (Not a directory). Check the path.",
        "loop": f"cannot be read (Too many levels of symbolic links). {link}",
        "dangling": "does not exist. Check the path.",
    }
    done = gpufence("check", "-o", "json", "-", *problems, stdin=TRESPASSER)
    assert (done.status, done.verdicts) == (2, ["denied", *["invalid"] * 4])
    assert done.errors == [f"{path}: {problem}" for path, problem in problems.items()]


SETPRIV = shutil.which("setpriv")


def run_subject_to_permissions(directory: Path, *args: str) -> Outcome:
    """Run the command line bound by permissions, which root is only without its capabilities."""
    run = "import sys; from webhook.tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", run, *args]
    if os.geteuid() == 0:
        if SETPRIV is None:
            pytest.skip("root may read everything, and there is no setpriv here")
        command = [SETPRIV, "--inh-caps=-all", "--bounding-set=-all", *command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_unreadable_paths_do_not_stop_the_check_of_other_files(tmp_path: Path) -> None:
    for name in ("sound.yaml", "secret.yaml", "closed/x.yaml", "folder/closed/x.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAIN_POD)
    closed = [tmp_path / name for name in ("secret.yaml", "closed", "folder/closed")]
    for path in closed:
        path.chmod(0)
    try:
        args = ("secret.yaml", "closed", "closed/x.yaml", "folder", "sound.yaml")
        done = run_subject_to_permissions(tmp_path, "check", "-o", "json", *args)
        policy = run_subject_to_permissions(
            tmp_path, "check", "--policy", "secret.yaml", "sound.yaml"
        )
    finally:
        for path in closed:
            path.chmod(0o755)
    assert (done.status, done.verdicts) == (2, ["invalid"] * 4 + ["allowed"])
    problem = "cannot be read (Permission denied). Give the user that runs gpufence read access."
    assert done.errors == [
        f"{path}: {problem}" for path in ("secret.yaml", "closed", "closed/x.yaml", "folder/closed")
    ]
    assert (policy.status, policy.err) == (2, f"Error: secret.yaml: {problem}\n")


def test_special_files_are_read_only_if_named(gpufence: Run, tmp_path: Path) -> None:
    """A pipe in a directory has no writer: reading it would block forever."""
    directory = tmp_path / "manifests"
    directory.mkdir()
    (directory / "pod.yaml").write_text(PLAIN_POD)
    os.mkfifo(directory / "x.yaml")
    (directory / "y.yaml").symlink_to("x.yaml")
    done = gpufence("check", "-o", "json", "manifests")
    assert (done.status, done.verdicts) == (0, ["allowed"])
    # Either end waits for the other.
    pipe = directory / "x.yaml"
    threading.Thread(target=pipe.write_text, args=[TRESPASSER], daemon=True).start()
    done = gpufence("check", "-o", "json", "manifests/x.yaml")
    assert (done.status, done.verdicts) == (1, ["denied"])


def test_bytes_that_are_not_utf_8_are_reported_with_their_line(gpufence: Run) -> None:
    done = gpufence("check", "--output", "json", "-", stdin=b"kind: Pod\nx: \xff\n")
    assert done.status == 2
    assert done.errors == [
        "<stdin>:2: is not UTF-8 text: byte 0xff (invalid start byte). Save it as UTF-8."
    ]


def test_utf_16_without_a_byte_order_mark_is_an_error_with_remediation(gpufence: Run) -> None:
    advice, options = "It looks like UTF-16: save it as UTF-8.", ("--output", "json", "-")
    texts = [t.encode(e) for t in (PLAIN_POD, '{"a": "v1"}') for e in ("utf-16-le", "utf-16-be")]
    done = [gpufence("check", *options, stdin=text) for text in texts]
    assert [(each.status, advice in each.errors[0]) for each in done] == [(2, True)] * 4


def test_byte_order_marks_and_windows_line_endings_are_accepted(gpufence: Run) -> None:
    text, found = f"{PLAIN_POD}---\n{TRESPASSER}".replace("\n", "\r\n"), {}
    for encoding in ("utf-8", "utf-8-sig"):
        done = gpufence("check", "--output", "json", "-", stdin=text.encode(encoding))
        lines = [result["source"]["line"] for result in done.report["results"]]
        found[encoding] = lines, done.verdicts
    assert found == {each: ([1, 10], ["allowed", "denied"]) for each in found}


POLICY = manifest("""
    apiVersion: gpufence.dev/v1beta1
    kind: FencePolicy
    metadata:
      name: gpufence
    spec:
      pools:
        - name: nvidia
          resources: [nvidia.com/gpu]
          taints: [{key: nvidia.com/gpu}]
          nodeSelector: {nvidia.com/gpu.present: "true"}
      rules:
        pool-trespass: warn
      exemptions:
        namespaces: [agents]
    """)


def test_excluded_namespaces_have_no_findings(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("warn", "enforce"))
    for namespace in ALWAYS_EXCLUDED:
        with subtests.test(namespace=namespace):
            options = ("--policy", "policy.yaml", "--namespace", namespace)
            done = gpufence("check", *options, "-", stdin=TRESPASSER)
            assert done.status == 0
            exempt = f"  exempt: API servers do not call gpufence for namespace {namespace}\n"
            assert done.out.startswith("allowed  ")
            assert exempt in done.out
            gpu_pod = GPU_POD.replace("namespace: ml", f"namespace: {namespace}")
            made = gpufence("mutate", *options, "-", stdin=gpu_pod)
            assert "tolerations" not in yaml.safe_load(made.out)["spec"]


def test_a_note_reports_verdicts_that_also_depend_on_the_cluster(
    gpufence: Run, tmp_path: Path
) -> None:
    allowed_namespaces = "      allowedNamespaces: {matchLabels: {gpu: allowed}}\n"
    (tmp_path / "policy.yaml").write_text(
        POLICY.replace("  rules:\n", f"{allowed_namespaces}  rules:\n")
    )
    bound = PLAIN_POD.replace("spec:\n", "spec:\n  nodeName: gpu-1\n", 1)
    done = gpufence(
        "check", "--policy", "policy.yaml", "-", stdin="---\n".join([GPU_POD, bound, PLAIN_POD])
    )
    assert done.status == 0
    notes = [line for line in done.err.splitlines() if line.startswith("Note: ")]
    by_nodes, by_labels = sorted(notes, reverse=True)
    assert "1 object: the webhook also checks whether spec.nodeName is a GPU node" in by_nodes
    assert "1 object: the verdict also depends on the labels of the namespace" in by_labels


def test_a_note_reports_unknown_claims_and_how_to_add_them(gpufence: Run) -> None:
    claims = "  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
    pod = PLAIN_POD.replace("spec:\n", f"spec:\n{claims}", 1)
    unused = gpufence("check", "-o", "json", "-", stdin=pod)
    assert (unused.status, unused.verdicts, unused.err) == (0, ["allowed"], "")
    used = pod.rstrip() + "\n      resources: {claims: [{name: gpu}]}\n"
    done = gpufence("check", "-o", "json", "-", stdin=used)
    assert (done.status, done.verdicts) == (0, ["unknown"])
    assert done.err == (
        "Note: 1 object is unknown: gpufence cannot judge its Pods before they are created. To "
        "fail on them, add --strict.\nNote: 1 object: the verdict also depends on resource claims "
        "that are unknown. Add the manifests of the claims or of their templates, or --cluster.\n"
    )
    template = manifest("""
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaimTemplate
        metadata: {name: one}
        spec:
          spec:
            devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}
        """)
    known = gpufence("check", "-n", "ml", "-o", "json", "-", stdin=f"{used}---\n{template}")
    assert (known.verdicts, known.err) == (["mutated", "skipped"], "")


MODEL = "apiVersion: kubeai.org/v1\nkind: Model\nmetadata: {name: a}\nspec: {url: hf://b}\n"


def test_an_object_that_gpufence_cannot_judge_fails_only_with_strict(gpufence: Run) -> None:
    note = "Note: 1 object is unknown: gpufence cannot judge its Pods before they are created."
    done = gpufence("check", "-", stdin=f"{MODEL}---\n{PLAIN_POD}")
    assert (done.status, done.err) == (0, f"{note} To fail on them, add --strict.\n")
    assert done.out.startswith("unknown  Model a  ")
    strict = gpufence("check", "--strict", "-", stdin=f"{MODEL}---\n{PLAIN_POD}")
    assert (strict.status, strict.err, strict.out) == (1, f"{note}\n", done.out)
    assert gpufence("check", "--strict", "-", stdin=PLAIN_POD).status == 0


def test_quiet_lists_only_denied_and_invalid_objects(gpufence: Run) -> None:
    text = "---\n".join([GPU_POD, TRESPASSER, PLAIN_POD, NO_QUANTITY])
    lines = gpufence("check", "--quiet", "-", stdin=text).out.splitlines()
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")] == [
        "denied",
        "invalid",
    ]
    assert gpufence("check", "-q", "-", stdin=GPU_POD).out == ""


def test_a_namespace_below_the_pod_counts(gpufence: Run, tmp_path: Path) -> None:
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml, labels: {gpu: allowed}}\n"
    options = ("check", "--policy", "policy.yaml", "--output", "json", "-")
    found = {}
    for selector in ("{gpu: allowed}", "{gpu: allowed, kubernetes.io/metadata.name: ml}"):
        allowed = f"      allowedNamespaces: {{matchLabels: {selector}, unknown: deny}}\n"
        (tmp_path / "policy.yaml").write_text(POLICY.replace("  rules:\n", f"{allowed}  rules:\n"))
        texts = (GPU_POD, f"{GPU_POD}---\n{namespace}")
        found[selector] = [gpufence(*options, stdin=text).verdicts for text in texts]
    assert found == {each: [["denied"], ["mutated", "skipped"]] for each in found}


def test_without_a_path_the_working_directory_is_checked(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(PLAIN_POD)
    assert gpufence("check", "-v").out.splitlines()[0] == "allowed  Pod default/web  a.yaml:1"


def test_a_missing_file_does_not_count_as_an_object(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(PLAIN_POD)
    done = gpufence("check", "a.yaml", "missing.yaml")
    assert done.status == 2
    summary = "1 object: 1 allowed; 1 file that cannot be read (policy: default)"
    assert done.out.splitlines()[-1] == summary

"""``gpufence check --fix`` and ``--diff``: what changes in files, and what does not."""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path

import pytest
import yaml

from policies.rules.check_missing_shared_memory import SHARED_MEMORY
from running import PLAIN_POD, TRESPASSER, Run, manifest
from webhook.tools.cli.text_edits import TextEdit, edited

TRAINING = manifest("""
    # a training Job
    apiVersion: batch/v1
    kind: Job
    metadata: {name: train}   # the name
    spec:
      template:
        spec:
          containers:
          # the only one
          - name: train
            image: 'pytorch:26.01'
            resources:
              limits: {nvidia.com/gpus: "8"}   # eight

          restartPolicy: Never
    """)

FIXED_TRAINING = manifest("""
    # a training Job
    apiVersion: batch/v1
    kind: Job
    metadata: {name: train}   # the name
    spec:
      template:
        spec:
          containers:
          # the only one
          - name: train
            image: 'pytorch:26.01'
            resources:
              limits: {nvidia.com/gpu: "8"}   # eight
            volumeMounts:
            - name: shm
              mountPath: /dev/shm

          restartPolicy: Never
          volumes:
          - name: shm
            emptyDir:
              medium: Memory
    """)


def pod(spec: str, kind: str = "Pod") -> str:
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n{spec}"


def fixed(gpufence: Run, text: str) -> str:
    """Return the text of a file after ``--fix``; a second run must not change it."""
    path = Path("a.yaml")
    path.write_bytes(text.encode())
    gpufence("check", "--fix", path)
    after = path.read_bytes()
    gpufence("check", "--fix", path)
    assert path.read_bytes() == after
    return after.decode()


def test_a_fixed_file_keeps_comments_order_and_quotes(gpufence: Run) -> None:
    Path("a.yaml").write_text(f"{TRAINING}---\n{PLAIN_POD}")
    done = gpufence("check", "--fix", ".")
    assert Path("a.yaml").read_text() == f"{FIXED_TRAINING}---\n{PLAIN_POD}"
    assert done.status == 0
    renamed, added = done.err.splitlines()
    container = "spec.template.spec.containers[0]"
    assert renamed == (
        f"Fixed: a.yaml:2: unknown-device-resource: rename {container}.resources.limits"
        "[nvidia.com/gpus] to nvidia.com/gpu."
    )
    mount = f'{{"name": "shm", "mountPath": "{SHARED_MEMORY}"}}'
    assert added.endswith(
        f"to spec.template.spec.volumes, add {mount} to {container}.volumeMounts."
    )
    # The report is about the fixed file.
    assert "2 objects: 1 mutated, 1 allowed" in done.out


def test_the_difference_can_be_applied_and_changes_nothing(gpufence: Run) -> None:
    Path("a.yaml").write_text(TRAINING)
    done = gpufence("check", "--diff", ".")
    assert (done.status, Path("a.yaml").read_text()) == (1, TRAINING)
    assert done.out.startswith("--- a/a.yaml\n+++ b/a.yaml\n@@ -10,6 +10,13 @@\n")
    added = [line[1:] for line in done.out.splitlines() if line.startswith("+ ")]
    assert all(f"{line}\n" in FIXED_TRAINING for line in added)
    Path("a.yaml").write_text(FIXED_TRAINING)
    assert gpufence("check", "--diff", ".")[:2] == (0, "")


GPU = "key: nvidia.com/gpu, operator: Exists"
SPOT = "key: spot, operator: Exists"


def test_a_toleration_of_a_pod_without_a_device_is_removed(gpufence: Run) -> None:
    gpu, spot = f"{{{GPU}}}", f"{{{SPOT}}}"
    containers = "  containers: [{name: web, image: nginx}]"
    texts = {
        "  tolerations:\n  - key: nvidia.com/gpu\n    operator: Exists\n": "",
        f"  tolerations:\n  # first\n  - {gpu}  # gone\n  - {spot}\n": (
            f"  tolerations:\n  # first\n  - {spot}\n"
        ),
        f"  tolerations: [{gpu}, {spot}]\n": f"  tolerations: [{spot}]\n",
        f"  tolerations: [{spot}, {gpu}]\n": f"  tolerations: [{spot}]\n",
        f"  tolerations:\r\n  - {spot}\r\n  - {gpu}\r\n": f"  tolerations:\r\n  - {spot}\r\n",
    }
    found = {before: fixed(gpufence, pod(before + containers)) for before in texts}
    assert found == {before: pod(after + containers) for before, after in texts.items()}


def test_what_has_no_obvious_remedy_stays(gpufence: Run, subtests: pytest.Subtests) -> None:
    claims = "resourceClaims: [{name: a, resourceClaimName: a}]"
    for spec in (
        # An alias uses the same list.
        f"  tolerations: &all\n  - {{{GPU}}}\n  x: *all\n",
        "  tolerations:\n  - operator: Exists\n",
        f"  tolerations:\n  - {{{GPU}}}\n  {claims}\n",
    ):
        with subtests.test(spec=spec):
            text = pod(f"{spec}  containers: [{{name: web, image: nginx}}]\n")
            assert fixed(gpufence, text) == text


def test_equal_limits_are_set_and_empty_requests_go(gpufence: Run) -> None:
    spec = "  containers:\n  - name: a\n    image: b\n    resources:\n      limits:\n"
    limit = "        nvidia.com/gpu: 1\n"
    requests = "      requests:\n        # the same\n        nvidia.com/gpu: 2\n"
    assert fixed(gpufence, pod(spec + limit + requests)) == pod(
        f"{spec}{limit}        # the same\n"
    )


def test_a_device_variable_is_removed_with_all_its_entries(gpufence: Run) -> None:
    spec = "  containers:\n  - name: a\n    image: b\n    env:\n{}    - name: A\n"
    shows = "    - name: NVIDIA_VISIBLE_DEVICES\n      value: all\n"
    assert fixed(gpufence, pod(spec.format(shows * 2))) == pod(spec.format(""))


def test_images_that_need_a_home_directory_get_one_on_one_volume(gpufence: Run) -> None:
    gpu = "resources: {limits: {nvidia.com/gpu: 1}}"
    images = "".join(f"  - {{name: {n}, image: vllm/vllm-openai, {gpu}}}\n" for n in "ab")
    after = yaml.safe_load(fixed(gpufence, pod(f"  containers:\n{images}")))["spec"]
    assert [each["name"] for each in after["volumes"]] == ["gpufence-home"]
    for container in after["containers"]:
        assert [each["name"] for each in container["env"]] == ["HOME", "USER", "LOGNAME"]
        [mount] = container["volumeMounts"]
        assert mount["subPath"] == container["name"]


def test_files_without_a_fix_are_not_written(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + PLAIN_POD.encode())
    (tmp_path / "b.yaml").write_text("a: [\n")
    (tmp_path / "c.yaml").write_bytes(TRESPASSER.encode("utf-16"))
    times = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    assert gpufence("check", "--fix", ".").status == 2
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())] == times


def test_merges_of_merges_next_to_a_comment_are_removed_at_once() -> None:
    """Each of the 30 lines names the one before eight times: 8 ** 30 ways to a value."""
    merges = [f"  l{i}: &l{i} {{<<: [{', '.join([f'*l{i - 1}'] * 8)}]}}" for i in range(1, 30)]
    lines = ["a: 1", "spec:", "  l0: &l0 {k: v}", *merges, "  # why", "  z: {<<: *l29}", ""]
    text, _ = edited("\n".join(lines), [TextEdit("remove", ("spec",))])
    assert text == "a: 1\n  # why\n"


def test_standard_input_and_pipes_cannot_be_fixed(gpufence: Run) -> None:
    done = gpufence("check", "--fix", "-", stdin=TRAINING)
    assert done.status == 2
    assert "--fix changes files, and - is standard input. Name the files." in done.err
    os.mkfifo("pipe")
    done = gpufence("check", "--fix", "pipe")
    assert (done.status, "pipe is no regular file. Name the files." in done.err) == (2, True)


def test_sarif_and_json_carry_the_fix(gpufence: Run) -> None:
    Path("a.yaml").write_text(TRAINING)
    [finding] = gpufence("check", "-o", "json", "a.yaml").report["results"][0]["findings"]
    path = "spec.template.spec.containers[0].resources.limits[nvidia.com/gpus]"
    assert finding["fix"] == [{"op": "rename", "path": path, "value": "nvidia.com/gpu"}]
    [result] = gpufence("check", "-o", "sarif", "a.yaml").report["runs"][0]["results"]
    [change] = result["fixes"][0]["artifactChanges"]
    [replacement] = change["replacements"]
    region, text = replacement["deletedRegion"], replacement["insertedContent"]["text"]
    assert region == {"startLine": 13, "startColumn": 1, "endLine": 14, "endColumn": 1}
    assert text == FIXED_TRAINING.splitlines(keepends=True)[12]


@pytest.mark.parametrize("path", ["link.yaml", "*.yaml", ".", "apps", "apps/web.yaml", "apps/*"])
def test_fix_changes_no_file_elsewhere_through_a_link(
    gpufence: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "web.yaml").write_text(TRESPASSER)
    (tmp_path / "link.yaml").symlink_to(outside / "web.yaml")
    (tmp_path / "apps").symlink_to(outside)
    for option in ("--fix", "--diff"):
        done = gpufence("check", option, path)
        assert "Fixed" not in done.err
        assert "--- a/" not in done.out
        assert (outside / "web.yaml").read_text() == TRESPASSER
    assert "is a link" in gpufence("check", "--fix", path).err


def test_fix_follows_a_link_within_the_working_directory(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(TRESPASSER)
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "link.yaml").symlink_to("../web.yaml")
    assert gpufence("check", "--fix", "apps/link.yaml").status == 0
    assert (tmp_path / "apps" / "link.yaml").is_symlink()
    assert "tolerations" not in (tmp_path / "web.yaml").read_text()


@pytest.mark.parametrize("end", ["", "\n", "\n---\n"])
def test_the_difference_of_many_documents_is_that_of_git(
    gpufence: Run, tmp_path: Path, end: str
) -> None:
    """Each document is compared with itself, and the result is that of the whole file."""
    texts = [TRESPASSER, PLAIN_POD, "a: 1\n", TRESPASSER.replace("name: web", "name: api")]
    before = "---\n".join(texts * 3).rstrip() + end
    (tmp_path / "all.yaml").write_text(before)
    difference = gpufence("check", "--diff", "all.yaml").out
    assert gpufence("check", "--fix", "all.yaml").status == 0
    after = (tmp_path / "all.yaml").read_text()
    lines = unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        "a/all.yaml",
        "b/all.yaml",
    )
    missing = "\n\\ No newline at end of file\n"
    assert difference == "".join(
        line if line.endswith("\n") else f"{line}{missing}" for line in lines
    )

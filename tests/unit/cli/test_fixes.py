"""``gpufence check --fix`` and ``--diff``: what changes in files, and what does not."""

from __future__ import annotations

import os
import resource
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

FIXED_TRAINING = TRAINING.replace("nvidia.com/gpus", "nvidia.com/gpu")
FIXED_TRAINING = FIXED_TRAINING.replace(
    "# eight\n",
    """# eight
        volumeMounts:
        - name: shm
          mountPath: /dev/shm
""",
)
FIXED_TRAINING += """\
      volumes:
      - name: shm
        emptyDir:
          medium: Memory
"""


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


def test_the_last_entry_of_a_device_variable_gets_the_value_void(gpufence: Run) -> None:
    spec = "  containers:\n  - name: a\n    image: b\n    env:\n{}    - name: A\n"
    shows = "    - name: NVIDIA_VISIBLE_DEVICES\n      value: all\n"
    hidden = pod(spec.format(shows + shows.replace("all", "void")))
    assert fixed(gpufence, pod(spec.format(shows * 2))) == hidden


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


@pytest.mark.parametrize("path", ["link.yaml", ".", "apps", "apps/web.yaml"])
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


def test_a_file_that_cannot_be_fixed_stays_and_the_others_are_fixed(
    gpufence: Run, tmp_path: Path
) -> None:
    """On a disk without space, and with a name in another directory as well."""
    names = ("a.yaml", "large.yaml", "linked.yaml", "z.yaml")
    for name in names:
        (tmp_path / name).write_text(TRESPASSER)
    large = TRESPASSER + "#" * 5000
    (tmp_path / "large.yaml").write_text(large)
    (tmp_path / "elsewhere").hardlink_to(tmp_path / "linked.yaml")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        done = gpufence("check", "--fix", *names)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.status == 2
    for name, reason in {"large.yaml": "File too large", "linked.yaml": "hard link"}.items():
        [line] = [line for line in done.err.splitlines() if line.startswith(f"Error: {name}")]
        assert reason in line
    found = {name: (tmp_path / name).read_text() for name in names}
    assert found["large.yaml"] == large
    assert found["linked.yaml"] == TRESPASSER
    assert "tolerations" not in found["a.yaml"] + found["z.yaml"]
    assert {path.name for path in tmp_path.iterdir()} == {*names, "elsewhere"}


@pytest.mark.parametrize("moment", ["hardlink_to", "replace"])
def test_a_change_of_another_program_is_kept(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the old content has a second name, and just before the new one gets the first."""
    path = tmp_path / "a.yaml"
    path.write_text(TRESPASSER)
    continued = getattr(Path, moment)

    def after_a_change(self: Path, target: Path) -> object:
        if not path.read_text().endswith("# by hand\n"):
            with path.open("a") as file:
                file.write("# by hand\n")
        return continued(self, target)

    monkeypatch.setattr(Path, moment, after_a_change)
    done = gpufence("check", "--fix", "a.yaml")
    assert done.status == 2
    assert "another program has changed it meanwhile" in done.err
    assert path.read_text() == f"{TRESPASSER}# by hand\n"


def test_a_fixed_file_keeps_its_permissions(gpufence: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(TRESPASSER)
    path.chmod(0o640)
    assert gpufence("check", "--fix", "a.yaml").status == 0
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("other", ["\r", "\u2028", "\x85", "\v"])
def test_a_line_break_that_is_none_for_all_is_kept_wherever_it_is(
    gpufence: Run, other: str
) -> None:
    removed = range(TRESPASSER.index("template:\n"), TRESPASSER.index("containers"))
    for place in range(0, len(TRESPASSER), 3):
        text = TRESPASSER[:place] + other + TRESPASSER[place:]
        Path("a.yaml").write_bytes(text.encode())
        done = gpufence("check", "--fix", "a.yaml")
        assert done.status in (0, 1, 2), (text, done.err)
        after = Path("a.yaml").read_bytes().decode()
        assert after == text or "Fixed" in done.err, text
        assert other in after or place in removed, text


def test_the_difference_of_a_file_without_a_last_line_feed_says_so(gpufence: Run) -> None:
    Path("a.yaml").write_text(f"{TRESPASSER}---\n{TRESPASSER}".rstrip())
    difference = gpufence("check", "--diff", "a.yaml").out
    assert difference.count("@@ -") == 2
    assert difference.endswith("\n\\ No newline at end of file\n")

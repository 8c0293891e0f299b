"""The gates of `make release-review` that need no build, and what the others reject."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from deploy.dockerfile import stages
from each import each
from paths import DEPLOY, PROJECT
from release_review import Rehearsal, checkout_gates, same_bytes, says, write_layer


def test_the_checkout_passes_each_gate_that_needs_no_build() -> None:
    gates = checkout_gates()
    if not (PROJECT / ".git").exists():
        del gates["OSPS-QA-05.01 no programs in Git"]

    def passes(gate: str) -> None:
        assert gates[gate]()

    each(gates, passes)
    with pytest.raises(AssertionError, match="no file LICENSE has MIT"):
        says("LICENSE", "MIT")


def test_rehearsals_that_differ_in_a_byte_or_in_the_image_fail(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SHA256SUMS").write_text("same")
    one, other = (Rehearsal("7.8.9", tmp_path / name, tmp_path, "d") for name in ("one", "other"))
    assert "1 files and the image are equal" in same_bytes(one, other)
    with pytest.raises(AssertionError, match="image: d and e"):
        same_bytes(one, Rehearsal("7.8.9", tmp_path / "other", tmp_path, "e"))
    (other.dist / "SHA256SUMS").write_text("Same")
    with pytest.raises(AssertionError, match=r"differ: \['SHA256SUMS'\]"):
        same_bytes(one, other)


def test_an_image_has_one_digest_for_its_files_and_settings(tmp_path: Path) -> None:
    [*_, final] = stages((DEPLOY / "Dockerfile").read_text())
    digests = []
    for number, name in enumerate(("one", "other")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("content")
        (tmp_path / name / "link").symlink_to("file")
        os.utime(tmp_path / name / "file", (number, number))
        digests.append(write_layer(tmp_path / name, final, tmp_path / f"{name}.tar.gz", 7))
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "one.tar.gz") as files:
        members = {member.name: (member.mtime, member.uid, member.linkname) for member in files}
    assert members == {"file": (7, 0, ""), "link": (7, 0, "file")}
    without_user = [each for each in final if each.word != "USER"]
    assert write_layer(tmp_path / "one", without_user, tmp_path / "x.tar.gz", 7) != digests[0]
    (tmp_path / "one" / "file").write_text("CONTENT")
    assert write_layer(tmp_path / "one", final, tmp_path / "x.tar.gz", 7) != digests[0]

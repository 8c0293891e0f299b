"""Code Quality of GitLab: an entry with a stable fingerprint for each finding."""

from __future__ import annotations

import json
from pathlib import Path

from running import BROKEN, FAULTS, PLAIN_POD, Run


def test_each_finding_is_an_entry_with_its_line(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(FAULTS)
    done = gpufence("check", "-o", "gitlab", "faults.yaml")
    assert done.status == 1
    entries = json.loads(done.out)
    rules = ["pool-trespass", "device-leak", "device-leak"]
    assert [entry["check_name"] for entry in entries] == rules
    assert {entry["severity"] for entry in entries} == {"critical"}
    assert {entry["location"]["path"] for entry in entries} == {"faults.yaml"}
    assert all(entry["location"]["lines"]["begin"] > 1 for entry in entries)
    fingerprints = [entry["fingerprint"] for entry in entries]
    assert len(set(fingerprints)) == 3
    # Lines that move do not make findings new.
    (tmp_path / "faults.yaml").write_text(f"# moved\n{FAULTS}")
    moved = json.loads(gpufence("check", "-o", "gitlab", "faults.yaml").out)
    assert [entry["fingerprint"] for entry in moved] == fingerprints


def test_a_broken_manifest_is_an_entry_and_no_finding_an_empty_list(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    [entry] = json.loads(gpufence("check", "-o", "gitlab", "broken.yaml").out)
    assert (entry["severity"], entry["location"]["lines"]) == ("blocker", {"begin": 4})
    assert gpufence("check", "-o", "gitlab", "-", stdin=PLAIN_POD).out == "[]\n"

"""CI runs `make compat` on the versions of Kubernetes that the pages name."""

from __future__ import annotations

import re

import yaml

from controlplane import binaries
from paths import PROJECT


def test_the_compatibility_page_names_the_versions_that_ci_tests() -> None:
    workflow = yaml.safe_load((PROJECT / ".github/workflows/ci.yaml").read_text())
    versions = workflow["jobs"]["compat"]["strategy"]["matrix"]["kubernetes"]
    page = (PROJECT / "docs/reference/compatibility.md").read_text()
    rows = re.findall(r"(?m)^\| (v1\.\d+\.\d+) \|", page)
    assert sorted(rows) == sorted([*versions, binaries.VERSION])


def test_versions_are_compared_by_number() -> None:
    assert binaries.is_older("v1.30.14", "v1.34")
    assert binaries.is_older("v1.9.0", "v1.30")
    assert not binaries.is_older("v1.34.0", "v1.34")
    assert not binaries.is_older("v1.36.3", "v1.34")

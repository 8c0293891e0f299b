"""The program behind `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import faults_in
from mutants import equivalents
from paths import PROJECT


def test_each_expression_has_its_faults(tmp_path: Path, subtests: pytest.Subtests) -> None:
    module = tmp_path / "module.py"
    for expression, faults in (
        ("a == b", {"(a != b)"}),
        ("a <= 1", {"(a < 1)", "a <= 2"}),
        ("not a", {"(a)"}),
        ("a and b", {"((a) or (b))", "((b))", "((a))"}),
        ("any(a)", {"all(a)"}),
        ("f(a)", set()),
    ):
        with subtests.test(expression=expression):
            # A character of two bytes: offsets count bytes.
            module.write_text(f"# é\nx = {expression}\n")
            source = module.read_bytes()
            found = {
                (source[: fault.start] + fault.text.encode() + source[fault.end :]).decode()
                for fault in faults_in(module)
            }
            assert found == {f"# é\nx = {fault}\n" for fault in faults}


def test_every_equivalent_fault_is_one_that_the_program_makes() -> None:
    files = {entry.file for entry in equivalents()}
    faults = [fault for file in files for fault in faults_in(PROJECT / file)]
    for entry in equivalents():
        assert any(map(entry.is_about, faults)), entry
        assert entry.reason

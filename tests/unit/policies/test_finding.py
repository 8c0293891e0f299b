"""Findings: what an audit and reports do with them, whatever rule returns them."""

from __future__ import annotations

from deciding import pod, policy
from policies.engine import decide
from policies.finding import Edit


def test_findings_whose_fixes_hold_mappings_have_a_hash() -> None:
    """An audit keeps equal decisions once."""
    several = pod({"resources": {"limits": {"nvidia.com/gpu": 2}}})
    findings = [
        finding
        for _ in range(2)
        for finding in decide(several, policy()).findings
        if finding.rule == "missing-shared-memory"
    ]
    assert any(isinstance(edit.value, dict | list) for edit in findings[0].fix)
    assert len(findings) == 2
    assert len(set(findings)) == 1


def test_a_fix_says_what_it_changes() -> None:
    assert str(Edit("remove", "spec.tolerations[0]")) == "remove spec.tolerations[0]"
    assert str(Edit("rename", "a", "b")) == "rename a to b"
    assert str(Edit("append", "a", {"b": 1})) == 'add {"b": 1} to a'
    assert str(Edit("set", "a", 1)) == "set a to 1"

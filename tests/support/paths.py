"""Directories of the checkout that tests read."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"
CASES = TESTS / "cases"
SCHEMAS = TESTS / "support" / "schemas"
DEPLOY = PROJECT / "deploy"
CHART = DEPLOY / "helm" / "gpufence"

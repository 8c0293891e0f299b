"""JUnit XML for CI systems: a test case for each object."""

from __future__ import annotations

from webhook.cli.report.formats.check_junit import report

__all__ = ["report"]

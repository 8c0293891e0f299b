"""Markdown for an issue or a chat: the findings as a table, the most severe first."""

from __future__ import annotations

from webhook.cli.report.formats.check_markdown import report

__all__ = ["report"]

"""The parts of the reference that are written from the code each time the site is built.

A page says where its generated part goes, on a line of its own: ``<!-- generated: policy -->``. The
rules have a page each, which is written into reference/rules/ and kept out of Git.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.typing import ExtensionMetadata

from gpufence_docs import chart, commands, files, metrics, policy, report, rules

PARTS: dict[str, Callable[[], str]] = {
    "changelog": lambda: files.document("CHANGELOG.md"),
    "chart": chart.markdown,
    "commands": commands.markdown,
    "default-policy": policy.default_markdown,
    "metrics": metrics.markdown,
    "policy": policy.markdown,
    "report": report.markdown,
    "rules": rules.markdown,
    "security": lambda: files.document("SECURITY.md"),
}
_MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register with Sphinx."""
    app.connect("builder-inited", _write_rules)
    app.connect("source-read", _fill_in)
    return {"parallel_read_safe": True}


def _fill_in(_app: Sphinx, page: str, content: list[str]) -> None:
    def part(mark: re.Match[str]) -> str:
        if mark[1] not in PARTS:
            raise ExtensionError(f"{page}: nothing is generated as {mark[1]!r}")
        return PARTS[mark[1]]()

    content[0] = files.on_site(_MARK.sub(part, content[0]))


def _write_rules(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "reference" / "rules"
    pages = {folder / f"{name}.md": text for name, text in rules.pages().items()}
    for stale in set(folder.glob("*.md")) - set(pages):
        stale.unlink()
    for path, text in pages.items():
        # Several builds may run at a time, and a page that is the same need not be read again.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

"""Generates the parts of the reference that come from the code, on every build of the site.

A page marks the place of a generated part with a line like ``<!-- generated: policy -->``. The page
of each rule is written to rules/ and is not in Git.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.errors import ExtensionError

from gpufence_docs import chart, commands, files, images, metrics, notices, policy, report, rules

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

PARTS: dict[str, Callable[[], str]] = {
    "changelog": lambda: files.document("CHANGELOG.md"),
    "chart": chart.markdown,
    "commands": commands.markdown,
    "default-policy": policy.default_markdown,
    "fence-test": policy.fence_test_markdown,
    "images": images.markdown,
    "metrics": metrics.markdown,
    "policy": policy.markdown,
    "report": report.markdown,
    "rules": rules.markdown,
    "security": lambda: files.document("SECURITY.md"),
    "third-party": notices.markdown,
}
_MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register with Sphinx."""
    # Each collection looks through the trees of all pages, and finds little: a build in 450 MiB of
    # memory takes 15 % less time.
    gc.disable()
    app.connect("builder-inited", _write_rules)
    app.connect("builder-inited", _write_schemas)
    app.connect("source-read", _fill_in)
    app.connect("html-page-context", _drop_edit_link)
    return {"parallel_read_safe": True}


def _fill_in(_app: Sphinx, page: str, content: list[str]) -> None:
    def part(mark: re.Match[str]) -> str:
        if mark[1] not in PARTS:
            raise ExtensionError(f"{page}: nothing is generated as {mark[1]!r}")
        return PARTS[mark[1]]()

    content[0] = files.on_site(_MARK.sub(part, content[0]))


def _write_schemas(app: Sphinx) -> None:
    policy.write_schemas(Path(app.srcdir) / "reference" / "schemas")


def _drop_edit_link(
    _app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Remove the edit link of a rule's page, which a build writes."""
    if page.startswith("rules/") and page != "rules/index":
        context["page_source_suffix"] = ""


def _write_rules(app: Sphinx) -> None:
    directory = Path(app.srcdir) / "rules"
    pages = {directory / f"{name}.md": text for name, text in rules.pages().items()}
    for stale in set(directory.glob("*.md")) - set(pages) - {directory / "index.md"}:
        stale.unlink()
    for path, text in pages.items():
        # Builds may run in parallel, and Sphinx reads only the pages that changed.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

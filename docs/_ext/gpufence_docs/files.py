"""Documents of the repository's root as pages, and the links to them from within docs/."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = {"SECURITY.md": "/reference/security.md", "CHANGELOG.md": "/reference/changelog.md"}
"""The pages of those documents, from the root of the site."""
_LINK = re.compile(r"\]\((?:\.\./)*([\w.-]+)\)")


def document(name: str) -> str:
    """Return a document of the root, with links relative to its page on the site."""
    return on_site((ROOT / name).read_text().replace("](docs/", "](/"))


def on_site(text: str) -> str:
    """Return a page's text, with links to documents of the root leading to their pages."""
    return _LINK.sub(lambda link: f"]({PAGES[link[1]]})" if link[1] in PAGES else link[0], text)

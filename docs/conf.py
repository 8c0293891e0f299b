"""Configuration of the site: Sphinx, MyST and Furo. ``make docs`` builds it."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# The generator of the reference, and the test helpers that it shares.
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tests" / "support")]

project = "gpufence"
release = version = version_of("gpufence")

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design", "gpufence_docs"]
exclude_patterns = ["_ext"]
# Every link must resolve to a page, a heading or a file in the repository.
nitpicky = True
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence"]
# Two hyphens start an option: typographic dashes would break commands.
smartquotes = False
# Highlight a block only in the language that it names.
highlight_language = "none"

# In console blocks, copy the commands without prompts and without output.
copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True

# Furo brings its own fonts, scripts and icons. The site loads nothing from other hosts.
html_theme = "furo"
html_title = f"gpufence {release}"
html_static_path = ["_static"]
html_css_files = ["gpufence.css"]
html_favicon = "_static/favicon.svg"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_js_files = ["tables.js"]
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#3d6b00", "color-brand-content": "#3d6b00"},
    "dark_css_variables": {"color-brand-primary": "#9ccc4f", "color-brand-content": "#9ccc4f"},
}

# Where the repository is: each page then has an edit link, and the footer a link to the repository.
if repository := os.environ.get("GPUFENCE_REPOSITORY", "").rstrip("/"):
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": os.environ.get("GPUFENCE_BRANCH", "main"),
        "source_directory": "docs/",
        "footer_icons": [{"name": "Repository", "url": repository, "html": "Repository"}],
    }

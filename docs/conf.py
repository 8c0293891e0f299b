"""The documentation's site, built by ``make docs`` without a network: Sphinx, MyST and Furo."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
# The generated reference, and the helpers of the tests that it shares.
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tests" / "support")]

project = "gpufence"
release = version = version_of("gpufence")

extensions = ["myst_parser", "gpufence_docs"]
exclude_patterns = ["_ext"]
# Every link must lead somewhere, to a page, a heading or a file of the repository.
nitpicky = True
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
# Blocks of code are highlighted as what they say they are, and not by a guess.
# Two hyphens are an option, not a dash.
smartquotes = False
highlight_language = "none"

# Furo brings its own fonts, scripts and icons: nothing comes from anywhere but the site itself.
html_theme = "furo"
html_title = f"gpufence {release}"
html_static_path = ["_static"]
html_css_files = ["gpufence.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3d6b00", "color-brand-content": "#3d6b00"},
    "dark_css_variables": {"color-brand-primary": "#9ccc4f", "color-brand-content": "#9ccc4f"},
}

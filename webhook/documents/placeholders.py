"""Placeholders of templates: text that a tool replaces before the manifest is applied."""

from __future__ import annotations

import re
from typing import Any

TEMPLATE_NOTE = "is a template, with placeholders such as {{ }}"

# envsubst and Flux: ${NAME}, $NAME, $(NAME); Helm and Jinja: {{ name }}; instructions: <name>.
_PLACEHOLDER = re.compile(
    r"\$\{[^}]*\}|\$\([^)]*\)|\$[A-Z_][A-Z0-9_]*|\{\{.*\}\}|<[^<>]+>|%[A-Z_]+%", re.DOTALL
)


def looks_like_template(text: str) -> bool:
    """Return whether a text that does not parse may be a template of a manifest."""
    return "{{" in text or "{%" in text


def placeholder_in(value: Any) -> str:
    """Return the placeholder in the value of a field; empty if there is none."""
    match = _PLACEHOLDER.search(value) if isinstance(value, str) else None
    return match[0] if match else ""

"""The architecture page names what exists."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

import webhook
from paths import PROJECT

PAGE = (PROJECT / "docs" / "contribute" / "architecture.md").read_text()


def resolve(name: str) -> Any:
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module)
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`((?:webhook|policies|certs)\.[\w.]+)`", PAGE)))
)
def test_each_dotted_name_on_the_page_exists(name: str) -> None:
    assert resolve(name) is not None


def test_the_diagram_has_every_package_of_webhook() -> None:
    packages = {module.name for module in iter_modules(webhook.__path__) if module.ispkg}
    assert {name for name in packages if f"webhook.{name}" not in PAGE} == set()

"""The architecture page names what exists."""

from __future__ import annotations

import re
import tomllib
from functools import reduce
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

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


def test_each_dotted_name_on_the_page_exists() -> None:
    names = set(re.findall(r"`((?:webhook|policies|certs)\.[\w.]+)`", PAGE))
    assert all(resolve(name) is not None for name in names)


def drawings() -> dict[str, list[str]]:
    """Return the layers that the page draws, from top to bottom, by the package that has them."""
    found = {}
    for block in re.findall(r"(?ms)^```text\n(.*?)^```", PAGE):
        container, *lines = block.splitlines()
        # A layer and its description are two spaces or more apart.
        found[container] = [re.split(r"\s{2,}", line.strip())[0] for line in lines]
    return found


def contracts() -> dict[str, list[str]]:
    """Return the layers that import-linter enforces, by the package that has them."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = {}
    for contract in settings["contracts"]:
        if contract["type"] != "layers":
            continue
        for container in contract.get("containers", [""]):
            layers = contract["layers"]
            if not container and all(part.startswith("webhook.") for part in layers):
                container = "webhook"
                layers = [layer.replace("webhook.", "") for layer in layers]
            found[container or "(root)"] = layers
    return found


def test_the_page_draws_what_import_linter_enforces() -> None:
    drawn = drawings()
    assert drawn.keys() == {"webhook", "(root)", "webhook.serve", "policies"}
    assert {container: contracts()[container] for container in drawn} == drawn


def test_the_drawing_has_every_module_of_webhook() -> None:
    drawn = {part.split(".")[0] for layer in drawings()["webhook"] for part in layer.split(" | ")}
    assert {module.name for module in iter_modules(webhook.__path__)} == drawn

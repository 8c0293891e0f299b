"""The site as `make docs` builds it."""

from __future__ import annotations

import json
import re
import runpy
from os.path import normpath
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from deploy import series
from paths import PROJECT
from policies.document import FencePolicy
from policies.registry import RULES
from policies.schema import json_schema
from webhook.tools.cli.main import cli

LOADED = re.compile(r'<(?:link|script|img|iframe)\s(?:[^>]*\s)?(?:href|src)="([^"]+)"')
LINK = re.compile(r'<a\s(?:[^>]*\s)?href="([^"]+)"')
ID = re.compile(r'<[^>]*\sid="([^"]*)"')
"""The writers of pages escape angle brackets and quotes in attributes and text."""


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in site.rglob("*.html")}


def test_the_site_loads_no_external_resources(site: Path, pages: dict[Path, str]) -> None:
    loads = [url for text in pages.values() for url in LOADED.findall(text)]
    assert len(loads) > 100
    assert [url for url in loads if urlsplit(url).netloc] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*", styles) == []


def test_every_internal_link_of_the_site_resolves(site: Path, pages: dict[Path, str]) -> None:
    ids = {path: set(ID.findall(text)) for path, text in pages.items()}
    missing = []
    for path, text in pages.items():
        for link in set(LINK.findall(text)):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = Path(normpath(path.parent / parts.path)) if parts.path else path
            found = parts.fragment in ids.get(target, ())
            exists = target in ids or target.exists()
            if not exists or (parts.fragment and not found):
                missing.append(f"{path.relative_to(site)}: {link}")
    assert missing == []


def test_the_reference_lists_every_key_command_metric_value_and_rule(site: Path) -> None:
    def text(name: str) -> str:
        return (site / "reference" / f"{name}.html").read_text()

    keys = json_schema(FencePolicy)["properties"]
    assert {key for key in keys if f">{key}<" not in text("policy")} == set()
    commands = cli.list_commands(None)  # type: ignore[arg-type]
    assert {name for name in commands if f"gpufence {name}" not in text("commands")} == set()
    metrics = {name for name in series.exported() if name.startswith("gpufence_")}
    assert {name for name in metrics if f">{name}<" not in text("metrics")} == set()
    values = yaml.safe_load((PROJECT / "deploy/helm/gpufence/values.yaml").read_text())
    assert {key for key in values if f">{key}" not in text("chart-values")} == set()
    pages = {path.stem for path in (site / "rules").glob("*.html")}
    assert pages == {"index", *(rule.id for rule in RULES)}


def test_the_search_finds_no_changelog_and_no_decision(site: Path) -> None:
    """Their pages are for contributors; users search for what holds now."""
    index = json.loads((site / "searchindex.js").read_text()[len("Search.setIndex(") : -1])
    names, terms = index["docnames"], index["terms"]
    found = {names[page] for pages in terms.values() for page in _listed(pages)}
    assert {"operate/install", "get-started/denied"} <= found
    hidden = {page for page in found if page.startswith(("decisions/", "contribute/"))}
    assert hidden | ({"reference/changelog"} & found) == set()


def _listed(pages: int | list[int]) -> list[int]:
    return pages if isinstance(pages, list) else [pages]


def test_each_page_has_an_edit_link_if_the_repository_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configuration = str(PROJECT / "docs" / "conf.py")
    assert "source_repository" not in runpy.run_path(configuration)["html_theme_options"]
    monkeypatch.setenv("GPUFENCE_REPOSITORY", "https://github.com/platform/gpufence/")
    options = runpy.run_path(configuration)["html_theme_options"]
    assert options["source_repository"] == "https://github.com/platform/gpufence"
    assert options["source_directory"] == "docs/"

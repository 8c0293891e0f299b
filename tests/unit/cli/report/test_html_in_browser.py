"""The page of an audit of 200 nodes and 3,000 Pods, in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

import browser as chromium
from audit.simulated import Cluster
from browser import Browser
from controlplane.poll import until
from webhook.tools.cli.report import html
from webhook.tools.cli.report.content import AuditReport, results_of

pytestmark = pytest.mark.skipif(
    bool(REASON := chromium.unavailable()), reason=f"no browser here: {REASON}"
)

GPU_NODES = 48
SHOWN = "return [...document.querySelectorAll(arguments[0])].filter(e => !e.hidden).length"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")

    async def audited() -> str:
        cluster = Cluster()
        assert cluster.fill(200, GPU_NODES, 3000) == 3000
        audit = await cluster.audit()
        now = datetime(2026, 11, 22, tzinfo=UTC)
        results = list(results_of(audit))
        content = AuditReport("default", now, results=results, audit=audit, cluster="simulated")
        return "".join(html.audit(content))

    path = directory / "audit.html"
    path.write_text(asyncio.run(audited()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with chromium.browser() as opened:
        yield opened


def wait_for(window: Browser, selector: str, count: int) -> None:
    """Wait until so many are shown: a page appears, and answers a click, in its own time."""
    until(lambda: window.run(SHOWN, selector) == count, f"{count} of {selector}")


def test_the_page_makes_no_further_requests_and_logs_no_errors(window: Browser, page: Path) -> None:
    window.requests()
    window.open(page)
    assert window.console() == []
    assert window.requests() == [page.as_uri()]


def test_the_page_shows_every_device_with_its_pod(window: Browser, page: Path) -> None:
    window.open(page)
    wait_for(window, "li.node", GPU_NODES)
    cells = window.run(SHOWN, ".cells .device")
    free = window.run(SHOWN, ".cells .device.free")
    assert (cells, free) == (GPU_NODES * 8, 112)
    first = window.driver.find_element(By.CSS_SELECTOR, "li.node").text
    assert "gpu-1\nno taint" in first
    assert "ml-vision/train-1-0-x7k2p" in first
    assert "▲ trespasser\nbatch/debug-shell" in first


def test_findings_are_filtered_by_text_and_selection(window: Browser, page: Path) -> None:
    window.open(page)
    driver = window.driver
    total = 5
    wait_for(window, "#found > li", total)
    search = driver.find_element(By.NAME, "text")
    search.send_keys("CACHE-warmer toleration")
    wait_for(window, "#found > li", 1)
    assert driver.find_element(By.ID, "count").text == "1 of 5 findings"
    search.send_keys(" nothing-like-it")
    wait_for(window, "#found > li", 0)
    driver.find_element(By.CSS_SELECTOR, "#filters button").click()
    wait_for(window, "#found > li", total)
    for name, value, shown in (
        ("action", "warn", 2),
        ("rule", "gpu-node-without-label", 1),
        ("action", "", 1),
        ("rule", "", 5),
        ("namespace", "web", 2),
    ):
        Select(driver.find_element(By.NAME, name)).select_by_value(value)
        wait_for(window, "#found > li", shown)


def test_nodes_are_filtered_by_problem(window: Browser, page: Path) -> None:
    window.open(page)
    nodes = Select(window.driver.find_element(By.NAME, "nodes"))
    for value, shown in (("trespassed", 3), ("unfenced", 2), ("", GPU_NODES)):
        nodes.select_by_value(value)
        wait_for(window, "li.node", shown)
        output = window.driver.find_element(By.CSS_SELECTOR, ".nodes-filter output").text
        assert output == f"{shown} of {GPU_NODES}"


def test_the_filters_are_usable_by_keyboard(window: Browser, page: Path) -> None:
    window.open(page)
    driver = window.driver
    for _ in range(30):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        if driver.switch_to.active_element.get_attribute("name") == "text":
            break
    driver.switch_to.active_element.send_keys("debug-shell", Keys.TAB, Keys.TAB)
    wait_for(window, "#found > li", 1)
    assert driver.switch_to.active_element.get_attribute("name") == "namespace"


def test_controls_and_sections_have_accessible_names(window: Browser, page: Path) -> None:
    window.open(page)
    css = "input, select, button, form, section, nav, summary"
    named = window.driver.find_elements(By.CSS_SELECTOR, css)
    assert all(each.accessible_name for each in named)


def test_the_page_fits_each_screen_width_with_sufficient_contrast(
    window: Browser, page: Path
) -> None:
    beyond = "return [...document.querySelectorAll('body *')].filter(e => "
    beyond += "!e.closest('pre') && e.getBoundingClientRect().right > innerWidth + 1).length"
    ground = "return getComputedStyle(document.body).backgroundColor"
    window.open(page)
    window.run("document.querySelector('details').open = true")
    for width in (360, 768, 1280):
        for dark in (False, True):
            window.resize(width, dark=dark)
            assert window.run("return document.documentElement.scrollWidth") == width
            assert window.run(beyond) == 0
            assert window.low_contrast() == []
            assert (window.run(ground) == "rgb(18, 22, 29)") is dark


def test_the_page_shows_findings_without_javascript(window: Browser, page: Path) -> None:
    window.allow_scripts(False)
    try:
        window.open(page)
        driver = window.driver
        found = driver.find_element(By.ID, "found")
        assert found.is_displayed()
        assert "A Pod without a GPU request runs on a GPU node" in found.text
        assert driver.find_elements(By.CSS_SELECTOR, "li.node")[-1].is_displayed()
        assert not driver.find_element(By.ID, "filters").is_displayed()
    finally:
        window.allow_scripts(True)


def test_the_printed_page_hides_the_filters(window: Browser, page: Path) -> None:
    window.open(page)
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not window.driver.find_element(By.ID, "filters").is_displayed()
    assert window.driver.find_element(By.CSS_SELECTOR, "li.node").is_displayed()
    assert len(window.driver.print_page()) > 10_000
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

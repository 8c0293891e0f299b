"""A real headless Chromium for the project's pages. It reaches no network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    # Every address that a page requests is unreachable.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def unavailable() -> str:
    """Return why no browser is available; empty if one is."""
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else ""


class Browser:
    """A window with one page. Sizes are in CSS pixels."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        # Selenium leaves these untyped.
        self._log: Any = driver.get_log

    def open(self, page: Path, *, width: int = 1280, dark: bool = False) -> None:
        """Show a page on a screen of that width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(page.as_uri())
        # On a busy machine the driver returns before the page is loaded.
        self.wait(lambda: self.run("return document.readyState") == "complete", "the whole page")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is seen."""
        WebDriverWait(self.driver, 30, poll_frequency=0.02).until(lambda _: condition(), what)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def console(self) -> list[str]:
        """Return the messages of the console, including errors of the browser."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """Return the URLs that were requested since the last call."""
        messages = [json.loads(entry["message"]) for entry in self._log("performance")]
        return [
            message["message"]["params"]["request"]["url"]
            for message in messages
            if message["message"]["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def browser(*, scripts: bool = True) -> Iterator[Browser]:
    """Run a browser during the block, with or without scripts of pages."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        if not scripts:
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        yield Browser(driver)
    finally:
        driver.quit()

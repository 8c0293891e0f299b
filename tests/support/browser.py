"""A real headless Chromium for the project's pages, without a network, and a server for them."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

from controlplane.poll import until

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    # Every address that a page requests is unreachable, except those of servers of the tests.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_CONTRAST = """
const channel = value => (value /= 255) <= 0.04045
  ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) =>
  0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = color => color.match(/[0-9.]+/g).map(Number);
const ground = element => {
  for (; element; element = element.parentElement) {
    const color = parse(getComputedStyle(element).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("body *")].filter(element =>
  [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()) &&
  element.checkVisibility() && !["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)
).map(element => {
  const [one, other] = [parse(getComputedStyle(element).color), ground(element)].map(luminance);
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  return [ratio, `${element.tagName}.${element.className}`];
}).filter(([ratio]) => ratio < 4.5).map(([ratio, name]) => `${name}: ${ratio.toFixed(2)}`);
"""


def unavailable() -> str:
    """Return why no browser is available; empty if one is."""
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else ""


class Browser:
    """A window with one page. Sizes are in CSS pixels."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        # A script goes through all pages of the site, on a machine that may be busy.
        driver.set_script_timeout(300)
        first = driver.current_window_handle
        driver.switch_to.new_window("tab")
        self._spare = driver.current_window_handle
        driver.switch_to.window(first)
        # Selenium leaves these untyped.
        self._log: Any = driver.get_log

    def open(self, page: Path | str, *, width: int = 1280, dark: bool = False) -> None:
        """Show a page, a file or an address, on a screen of that width."""
        address = page.as_uri() if isinstance(page, Path) else page
        try:
            self._load(address, width, dark=dark)
        except WebDriverException as error:
            if "tab crashed" not in str(error):
                raise
            # Chromium lost a tab once in thousands of pages. The same page loaded the next time.
            self.driver.switch_to.window(self._spare)
            self._load(address, width, dark=dark)
        # On a busy machine the driver returns before the page is loaded.
        until(lambda: self.run("return document.readyState") == "complete", "the whole page")

    def _load(self, address: str, width: int, *, dark: bool) -> None:
        self.resize(width, dark=dark)
        self.driver.get(address)

    def resize(self, width: int, *, dark: bool = False) -> None:
        """Show the page on a screen of that width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def allow_scripts(self, allowed: bool) -> None:
        """Run the scripts of pages that are opened from now on, or do not."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def low_contrast(self) -> list[str]:
        """Return the visible texts with a contrast below 4.5 (WCAG 1.4.3): element and ratio."""
        low: list[str] = self.run(_CONTRAST)
        return low

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


class _Handler(SimpleHTTPRequestHandler):
    """A static server with HTTP/1.1 and without a log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve a directory on the loopback interface; yield the address, without a last slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=directory)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser during the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()

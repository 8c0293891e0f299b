"""The site, built as `make docs` builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from controlplane import cache
from paths import PROJECT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The built site. The test processes of one run share it."""
    base = tmp_path_factory.getbasetemp()
    directory = (base if worker_id == "master" else base.parent) / "site"
    html = directory / "html"
    with cache.lock(directory.with_suffix(".lock"), "building the site"):
        if not html.exists():
            command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
            places = ["-d", f"{directory}/doctrees", f"{PROJECT}/docs", f"{directory}/new"]
            done = subprocess.run(
                [*command, "-E", *places], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            (directory / "new").rename(html)
    return html

"""The wheels of the pinned libraries, downloaded once.

The pages of a package index list thousands of files, and pip reads them for each installation: four
fifths of its CPU time.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from controlplane import cache
from controlplane.errors import ControlPlaneError
from paths import DEPLOY, PROJECT

REQUIREMENTS = (PROJECT / "requirements/run.txt", DEPLOY / "build-requirements.txt")


def environ() -> dict[str, str]:
    """Return the variables with which pip installs them, for this interpreter and no other.

    Raises:
        ControlPlaneError: they cannot be downloaded.
    """
    pins = b"".join(path.read_bytes() for path in REQUIREMENTS) + sys.version.encode()
    home = cache.root() / "wheels" / hashlib.sha256(pins).hexdigest()[:16]
    cache.filled(home, "downloading the wheels of the pinned libraries", _download)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(home)}


def _download(target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    files = [part for path in REQUIREMENTS for part in ("-r", path)]
    pinned = ["--only-binary=:all:", "--require-hashes", "--dest", target, *files]
    done = subprocess.run([*pip, *pinned], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ControlPlaneError(f"pip cannot download the libraries:\n{done.stderr.strip()}")

"""The files of the playground: its page, gpufence's wheel, and Python for WebAssembly.

The runtime is the npm package ``pyodide``. The two libraries with compiled code are wheels from
PyPI, pinned by ``requirements/run.txt``; the other libraries are those of this environment, which
the same file pins. Downloads are cached, and their hashes are verified.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from sphinx.errors import ExtensionError

from controlplane import cache
from policies.shipped import PRESETS, default_policy_text

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "docs" / "playground"
PAGE = (
    "editor.js",
    "engine.js",
    "engine.py",
    "link.js",
    "page.js",
    "playground.css",
    "results.js",
    "start.js",
    "worker.js",
)
"""The files that are copied as they are."""

PYODIDE = "314.0.7"
SHA512 = (
    "d18bd7c4485f11da4b7dbfd790cd8114078c44eab488c517d9bcf31fda4eb6dc"
    "8c716930abe1db139bb2b860fcd8b37bcb6abe48dbe2ffa579244b0e943d91d4"
)
"""The digest of the npm package."""
ADDRESS = f"https://registry.npmjs.org/pyodide/-/pyodide-{PYODIDE}.tgz"
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
PLATFORM = ("pyemscripten_2026_0_wasm32", "3.14", "cp314")
"""Platform, Python version and ABI of that release of pyodide."""

COMPILED = ("msgspec", "pydantic-core")
"""The libraries with compiled code that a check needs."""
PURE = (
    *("annotated-types", "click", "jinja2", "jsonpatch", "jsonpointer"),
    *("markupsafe", "pydantic", "pyyaml", "typing-extensions", "typing-inspection"),
)
"""The other libraries. PyYAML and MarkupSafe have compiled code only to be faster."""

_OLDEST = (1980, 1, 1, 0, 0, 0)


def write(directory: Path) -> None:
    """Write everything that the playground's page loads into a directory.

    Raises:
        ExtensionError: a download failed, or has another digest than the pinned one.
    """
    runtime = directory / "runtime"
    runtime.mkdir(parents=True, exist_ok=True)
    for name in PAGE:
        shutil.copyfile(SOURCE / name, directory / name)
    (directory / "data.json").write_text(json.dumps(data()))
    downloads = downloaded()
    for name in RUNTIME:
        shutil.copyfile(downloads / name, runtime / name)
    _write_libraries(runtime / "libraries.zip", downloads)
    _write_wheel(runtime / "gpufence.whl")
    # The worker counts what arrives: all but the modules, which the browser loads by itself.
    counted = [
        *(file for file in runtime.iterdir() if file.suffix != ".mjs"),
        directory / "engine.py",
    ]
    total = sum(file.stat().st_size for file in counted)
    (runtime / "sizes.json").write_text(json.dumps({"total": total}))


def data() -> dict[str, Any]:
    """Return the samples, the policies by name, and the sample nodes."""
    samples = yaml.safe_load((SOURCE / "samples.yaml").read_text())
    for sample in samples:
        if file := sample.pop("file", None):
            sample["manifest"] = (ROOT / file).read_text()
    return {
        "samples": samples,
        "policies": {"default": default_policy_text()}
        | {preset.stem: preset.read_text() for preset in sorted(PRESETS.iterdir())},
        "nodes": (ROOT / "deploy" / "samples" / "nodes.yaml").read_text(),
        "repository": os.environ.get("GPUFENCE_REPOSITORY", "").rstrip("/"),
    }


def fragment(manifest: str) -> str:
    """Return the fragment with which the page shows a manifest (docs/playground/link.js)."""
    state = json.dumps({"manifest": manifest, "policy": "default"}).encode()
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(state) + packer.flush()
    return f"#1={base64.urlsafe_b64encode(packed).decode().rstrip('=')}"


def downloaded() -> Path:
    """Return a directory with the runtime and the compiled wheels. It is downloaded once."""
    pins = _pins()
    key = hashlib.sha256(f"{SHA512} {PLATFORM} {pins}".encode()).hexdigest()[:16]
    directory = cache.root().parent / "playground" / key
    with cache.lock(directory.with_suffix(".lock"), "downloading the playground's runtime"):
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
                new = Path(temporary) / "new"
                new.mkdir()
                _download_runtime(new)
                _download_wheels(new, pins)
                new.rename(directory)
    return directory


def _download_runtime(directory: Path) -> None:
    """Download the npm package, and extract what the page loads."""
    name = f"pyodide-{PYODIDE}.tgz"
    package = directory / name
    if npm := shutil.which("npm"):
        # npm knows the registry that this machine uses.
        _run([npm, "pack", "--silent", f"pyodide@{PYODIDE}"], directory)
    else:
        try:
            with urllib.request.urlopen(ADDRESS, timeout=60) as response:
                package.write_bytes(response.read())
        except OSError as error:
            raise ExtensionError(
                f"the playground's runtime cannot be downloaded: {error}"
            ) from error
    digest = hashlib.sha512(package.read_bytes()).hexdigest()
    if digest != SHA512:
        raise ExtensionError(f"{name} has the SHA-512 digest {digest}, not {SHA512}")
    with tarfile.open(package) as archive:
        for file in RUNTIME:
            content = archive.extractfile(f"package/{file}")
            assert content is not None, file  # noqa: S101 - pinned
            (directory / file).write_bytes(content.read())
    package.unlink()


def _download_wheels(directory: Path, pins: str) -> None:
    requirements = directory / "requirements.txt"
    requirements.write_text(pins)
    platform, python, abi = PLATFORM
    target = ["--platform", platform, "--python-version", python, "--abi", abi]
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--implementation", "cp"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    _run([*pip, *options, *target, "-r", requirements.name], directory)


def _pins() -> str:
    """Return the lines of requirements/run.txt for the compiled libraries."""
    text = (ROOT / "requirements" / "run.txt").read_text()
    found = [re.search(rf"(?m)^{name}==.*(?:\n    --hash.*)+", text) for name in COMPILED]
    return "".join(f"{match[0].rstrip(' ' + chr(92))}\n" for match in found if match)


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
        command, cwd=directory, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ExtensionError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


def _write_wheel(path: Path) -> None:
    """Write the wheel of this checkout."""
    with tempfile.TemporaryDirectory() as temporary:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", temporary]
        _run(build, ROOT)
        [wheel] = Path(temporary).glob("*.whl")
        shutil.copyfile(wheel, path)


def _write_libraries(path: Path, downloads: Path) -> None:
    """Write the modules of all libraries. The same input gives the same bytes."""
    files = dict(_installed())
    for wheel in downloads.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            files |= {name: archive.read(name) for name in archive.namelist() if _is_module(name)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _OLDEST), files[name], zipfile.ZIP_DEFLATED)


def _installed() -> Iterator[tuple[str, bytes]]:
    """Yield the Python modules of the libraries without compiled code."""
    for library in PURE:
        for file in metadata.files(library) or ():
            if file.suffix == ".py" and ".." not in file.parts:
                yield str(file), file.read_binary()


def _is_module(name: str) -> bool:
    return name.endswith((".py", ".so"))

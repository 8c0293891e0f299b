"""Completes the root of the image: Python, the shared libraries that it loads, CAs, licenses, SBOM.

deploy/Dockerfile runs it after pip has installed gpufence below the root. The image begins from
nothing, so it has no shell, no package manager and no pip.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

LEFT_OUT = (
    *("__pycache__", "site-packages", "dist-packages", "config-*", "test", "tests", "ensurepip"),
    *("idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo", "sqlite3", "curses", "venv"),
    *(
        "nis.*",
        "_tkinter.*",
        "_sqlite3.*",
        "_dbm.*",
        "_gdbm.*",
        "_curses*",
        "readline.*",
        "_test*",
        "xx*",
    ),
)
"""The parts of the standard library that gpufence and its libraries do not import."""
LIBRARY = re.compile(r"(?m)(?:=>|^)\s+(/\S+) \(0x")
"""A line of ldd."""
SBOM = Path("usr/share/gpufence.cdx.json")


def complete(root: Path) -> None:
    """Add to the root what the installed packages need, and say what is in it."""
    python, standard = Path(sys.executable), Path(sysconfig.get_path("stdlib"))
    below(root, python).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(python, below(root, python))
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(
        *(standard, below(root, standard)), symlinks=True, ignore=ignored, dirs_exist_ok=True
    )
    libraries = shared([below(root, python), *root.rglob("*.so"), *root.rglob("*.so.*")])
    for library in libraries:
        below(root, library).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, below(root, library))
    authorities = Path("/etc/ssl/certs")
    for path in authorities.iterdir():
        below(root, authorities).mkdir(parents=True, exist_ok=True)
        # Links by the hash of a CA lead to its file; that file is a link out of the directory.
        if path.is_symlink() and "/" not in str(path.readlink()):
            below(root, path).symlink_to(path.readlink())
        elif path.is_file():
            shutil.copy(path, below(root, path))
    searched = below(root, Path(ssl.get_default_verify_paths().openssl_capath))
    if not searched.exists():
        searched.parent.mkdir(parents=True, exist_ok=True)
        searched.symlink_to(authorities)
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    shutil.copy("/etc/os-release", root / "etc")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    packages = owners([python, standard / "os.py", *libraries, Path("/etc/ca-certificates.conf")])
    describe(root, packages)


def below(root: Path, path: Path) -> Path:
    """Return where an absolute path of this machine is in the image."""
    return root / path.relative_to("/")


def shared(files: list[Path]) -> list[Path]:
    """Return the shared libraries that the files load, and the one that ends threads."""
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    [c_library] = {path for path in LIBRARY.findall(listed) if path.endswith("/libc.so.6")}
    # glibc loads it by name when a thread ends.
    found = {*LIBRARY.findall(listed), str(Path(c_library).with_name("libgcc_s.so.1"))}
    inside = {str(path) for path in files}
    return sorted(Path(path) for path in found - inside)


def owners(files: list[Path]) -> list[str]:
    """Return the packages of the distribution that hold these files."""
    # Before directories were merged, a package listed /lib, which is now a link to /usr/lib.
    real = [str(path.resolve()) for path in files]
    names = {*map(str, files), *real, *(path.removeprefix("/usr") for path in real)}
    found = subprocess.run(
        ["dpkg", "--search", *sorted(names)], capture_output=True, text=True, check=False
    )
    return sorted({line.split(":")[0] for line in found.stdout.splitlines()})


def describe(root: Path, packages: list[str]) -> None:
    """Write the licenses of all parts, what scanners read of them, and the SBOM."""
    components = [component("generic", "python", platform.python_version())]
    state = root / "var/lib/dpkg/status.d"
    state.mkdir(parents=True)
    for name in packages:
        status = subprocess.run(
            ["dpkg-query", "--status", name], capture_output=True, text=True, check=True
        ).stdout
        (state / name).write_text(status)
        [version] = re.findall(r"(?m)^Version: (.*)$", status)
        components.append(component("deb/debian", name, version))
        terms = Path("/usr/share/doc") / name / "copyright"
        below(root, terms).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(terms, below(root, terms))
    installed = str(below(root, Path(sysconfig.get_path("purelib"))))
    components += sorted(
        (
            component("pypi", each.name.lower(), each.version)
            for each in metadata.distributions(path=[installed])
        ),
        key=lambda each: each["name"],
    )
    (root / SBOM).write_text(document(components))


def document(components: list[dict[str, str]]) -> str:
    """Return an SBOM (CycloneDX)."""
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return json.dumps({**head, "components": components}, indent=1) + "\n"


def component(kind: str, name: str, version: str) -> dict[str, str]:
    """Return an entry of the SBOM (CycloneDX)."""
    purl = f"pkg:{kind}/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    complete(Path(sys.argv[1]))

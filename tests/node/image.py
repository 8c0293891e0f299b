"""Images for the node: deploy/Dockerfile, a workload, and busybox, the first two on a Debian."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from controlplane import cache
from controlplane.errors import ControlPlaneError
from paths import DEPLOY, PROJECT

GPUFENCE = "localhost/gpufence"
TOOLS = "localhost/tools:1"
"""Has a shell, and is the pause image of the node as well."""
WORKLOADS = "localhost/workloads:1"
"""Has what containers of GPU Pods do at their start, from packages of Debian and PyPI."""
SUITE = "bookworm"
_BASE = "localhost/debian:1"
_CERTIFICATES = Path("/etc/ssl/certs")
_TOOLS = """\
FROM scratch
COPY busybox /bin/busybox
COPY busybox /bin/sh
ENTRYPOINT ["/bin/busybox", "sleep", "2147483647"]
"""
_WORKLOADS = f"""\
FROM {_BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends openssh-client sudo \\
 && mkdir /packages && cd /packages && apt-get download hello && python3 -m venv /opt/venv
# Images whose Python is not that of the distribution have no such file.
RUN rm /usr/lib/python3.11/EXTERNALLY-MANAGED && pip install jupyter-server==2.17.0 \\
    huggingface-hub==0.36.0 && pip download --no-deps --dest /packages tabulate==0.9.0
"""


class Images:
    """Builds images, without a daemon, and writes them as archives into a directory.

    Layers stay in the cache: the libraries are installed again only when their pins change.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._storage = cache.root().with_name("node") / "images"

    def tools(self) -> Path:
        """Return an archive with the image TOOLS."""
        with tempfile.TemporaryDirectory(dir=self.directory) as temporary:
            context = Path(temporary)
            shutil.copy(str(shutil.which("busybox")), context / "busybox")
            (context / "Dockerfile").write_text(_TOOLS)
            self._build(context / "Dockerfile", context, TOOLS)
        return self._archive(TOOLS)

    def gpufence(self, *tags: str) -> list[Path]:
        """Return archives with gpufence's image, built from deploy/Dockerfile, one for each tag."""
        self._make_base()
        names = [f"{GPUFENCE}:{tag}" for tag in tags]
        self._build(DEPLOY / "Dockerfile", PROJECT, names[0], f"--build-arg=BASE={_BASE}")
        for name in names[1:]:
            self._buildah("tag", names[0], name)
        return [self._archive(name) for name in names]

    def workloads(self) -> Path:
        """Return an archive with the image WORKLOADS."""
        self._make_base()
        with tempfile.TemporaryDirectory(dir=self.directory) as temporary:
            (Path(temporary) / "Dockerfile").write_text(_WORKLOADS)
            self._build(Path(temporary) / "Dockerfile", Path(temporary), WORKLOADS)
        return self._archive(WORKLOADS)

    def _make_base(self) -> None:
        if _BASE not in self._buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
            container = self._buildah("from", "scratch").strip()
            self._buildah("add", container, str(base_archive()), "/")
            self._buildah("commit", "--quiet", "--rm", container, _BASE)

    def _build(self, dockerfile: Path, context: Path, name: str, *arguments: str) -> None:
        # Without a network namespace and with the machine's certificates, as pip needs them.
        self._buildah(
            *("bud", "--isolation=chroot", "--network=host", "--pull-never", "--layers"),
            *(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro", *arguments),
            *("-t", name, "-f", str(dockerfile), str(context)),
        )

    def _archive(self, name: str) -> Path:
        archive = self.directory / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
        self._buildah("push", "--quiet", name, f"oci-archive:{archive}:{name}")
        return archive

    def _buildah(self, *arguments: str) -> str:
        storage = [f"--root={self._storage}/root", f"--runroot={self._storage}/run"]
        return _run("buildah", *storage, *arguments)


def base_archive() -> Path:
    """Return an archive with the root of a Debian with Python, and build it if the cache has none.

    Raises:
        ControlPlaneError: debootstrap failed.
    """
    archive = cache.root().with_name("node") / f"base-{SUITE}.tar"
    with cache.lock(archive.with_suffix(".lock"), "building the base image"):
        if not archive.exists():
            cache.say("building the base image with debootstrap. Once only; some minutes")
            _debootstrap(archive)
    return archive


def _debootstrap(archive: Path) -> None:
    # From where this machine takes its own packages.
    listed = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)")
    sources = [line.split() for line in _run(*listed, "Created-By: Packages").splitlines()]
    mirrors = [uri for uri, release in sources if release == SUITE]
    if not mirrors:
        raise ControlPlaneError(f"apt has no source for {SUITE}: the base image needs one")
    with tempfile.TemporaryDirectory(dir=archive.parent) as temporary:
        root, fresh = Path(temporary) / "root", Path(temporary) / "base.tar"
        packages = "ca-certificates,python3,python3-pip,python3-venv"
        options = ["--variant=minbase", f"--include={packages}", SUITE, str(root), mirrors[0]]
        _run("debootstrap", *options)
        _run("tar", "--create", f"--file={fresh}", f"--directory={root}", "--exclude=./dev/*", ".")
        fresh.replace(archive)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = f"{done.stdout}{done.stderr}"[-3000:]
        raise ControlPlaneError(f"{' '.join(command)} failed:\n{output}")
    return done.stdout

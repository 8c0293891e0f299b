"""Images for the node: deploy/Dockerfile on a base from debootstrap, and one with busybox."""

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
SUITE = "bookworm"
_BASE = "localhost/debian:1"
_CERTIFICATES = Path("/etc/ssl/certs")
_TOOLS = """\
FROM scratch
COPY busybox /bin/busybox
COPY busybox /bin/sh
ENTRYPOINT ["/bin/busybox", "sleep", "2147483647"]
"""


class Images:
    """Builds images into a directory, without a daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def tools(self) -> Path:
        """Return an archive with the image TOOLS."""
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            context = Path(temporary)
            shutil.copy(str(shutil.which("busybox")), context / "busybox")
            (context / "Dockerfile").write_text(_TOOLS)
            return self._build(context / "Dockerfile", context, TOOLS)

    def gpufence(self, tag: str) -> Path:
        """Return an archive with gpufence's image, built from deploy/Dockerfile."""
        base = self._base()
        named = f"--build-arg=BASE={base}"
        return self._build(DEPLOY / "Dockerfile", PROJECT, f"{GPUFENCE}:{tag}", named)

    def _base(self) -> str:
        """Import a Debian with Python into the storage, and return its name."""
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", container, str(base_archive()), "/")
        self._buildah("commit", "--quiet", "--rm", container, _BASE)
        return _BASE

    def _build(self, dockerfile: Path, context: Path, tag: str, *arguments: str) -> Path:
        # Without a network namespace and with the machine's certificates, as pip needs them.
        self._buildah(
            *("bud", "--isolation=chroot", "--network=host", "--pull-never", "--quiet"),
            *(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro", *arguments),
            *("-t", tag, "-f", str(dockerfile), str(context)),
        )
        archive = self.folder / f"{tag.rpartition('/')[2].replace(':', '-')}.tar"
        archive.unlink(missing_ok=True)
        self._buildah("push", "--quiet", tag, f"oci-archive:{archive}:{tag}")
        return archive

    def _buildah(self, *arguments: str) -> str:
        storage = [f"--root={self.folder}/storage", f"--runroot={self.folder}/run"]
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
        said = f"{done.stdout}{done.stderr}"[-3000:]
        raise ControlPlaneError(f"{' '.join(command)} failed:\n{said}")
    return done.stdout

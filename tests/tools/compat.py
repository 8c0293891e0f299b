"""Runs the end-to-end tests on another Kubernetes: `make compat VERSION=v1.34.10` runs it.

`ARGS=tests/e2e/test_mode.py` selects tests; options of pytest, such as `-k`, go there, too.

API server, controller manager and scheduler of that version are built from its own modules and
cached. Their staging modules come from the list in its go.mod, so any version that Go can download
works. etcd and kubectl are those of the other tests: older ones lack flags that the tests use.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from controlplane import binaries, cache, toolchain
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import GoModule, run
from paths import PROJECT

KUBERNETES = "k8s.io/kubernetes"
TESTED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
GO_MOD = """\
module gpufence.dev/tests/compat

go {go}

godebug default=go{minor}

tool (
{tools}
)

require k8s.io/kubernetes {version}

replace (
{replaced}
)
"""


def module(version: str) -> GoModule:
    """Return the Go module of a control plane, with its pins written into the cache.

    Raises:
        ControlPlaneError: it is not a version, or Go cannot download it.
    """
    if not re.fullmatch(r"v1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?", version):
        raise ControlPlaneError(
            f"{version!r} is not a release of Kubernetes: use v1.MINOR.PATCH, or a pre-release"
        )
    directory = cache.root().with_name("compat") / version
    if not (directory / "go.sum").exists():
        shutil.rmtree(directory, ignore_errors=True)
        _write(directory, version)
    packages = {name: binaries.PACKAGES[name] for name in TESTED}
    what = f"the Kubernetes {version} control plane"
    return GoModule(directory, packages, binaries.ldflags(version), what)


def _write(directory: Path, version: str) -> None:
    go = binaries.go()
    directory.mkdir(parents=True)
    download = ["mod", "download", "-json", f"{KUBERNETES}@{version}"]
    own = Path(json.loads(run(go, directory, *download))["GoMod"]).read_text()
    staging = re.findall(r"(?m)^\s+(k8s\.io/\S+) => \./staging/", own)
    released = version.replace("v1.", "v0.", 1)
    minor = ".".join(map(str, toolchain.go_version(go)[:2]))
    text = GO_MOD.format(
        go=f"{minor}.0",
        minor=minor,
        version=version,
        tools="\n".join(f"\t{binaries.PACKAGES[name]}" for name in TESTED),
        replaced="\n".join(f"\t{name} => {name} {released}" for name in staging),
    )
    (directory / "go.mod").write_text(text)
    run(go, directory, "mod", "tidy")


def main(arguments: list[str]) -> int:
    """Build the control plane of a version, and run the tests on it; return the exit code."""
    version, *options = arguments or [""]
    if not any(each.startswith("tests/") for each in options):
        options.append("tests/e2e")
    try:
        paths = module(version).binaries(TESTED, cache.root())
        paths |= binaries.module().binaries(("etcd", "kubectl"), cache.root())
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    found = binaries.version_of(paths["kube-apiserver"])
    print(f"Running pytest {' '.join(options)} on {found}", flush=True)
    with tempfile.TemporaryDirectory() as assets:
        for name, path in paths.items():
            (Path(assets) / name).symlink_to(path)
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=PROJECT,
            env=os.environ | {"KUBEBUILDER_ASSETS": assets},
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

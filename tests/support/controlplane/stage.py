"""Runs the demo: chapters on files while the control plane is built, then chapters in a cluster."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane, free_ports
from controlplane.errors import ControlPlaneError
from controlplane.gpufence import COMMAND, Server
from controlplane.kubectl import KubectlError
from controlplane.screen import Screen, StoryError
from controlplane.story import Stage, play_cluster, play_files
from paths import PROJECT

NEXT = """\
Next:
  gpufence check MANIFESTS    check your own manifests
  gpufence audit              check what runs in your cluster, without installing anything
  docs/operate/install.md     install the chart, first with checks that only warn
"""
FAILURES = (StoryError, KubectlError, TimeoutError, ControlPlaneError)


def main(arguments: list[str] | None = None) -> int:
    """Play the demo; return the exit code: 0 if every chapter succeeded, else 1."""
    parser = argparse.ArgumentParser(
        prog="demo", description="gpufence on files, and on a real control plane."
    )
    parser.add_argument("--keep", action="store_true", help="leave it all running until Ctrl-C")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where its files go")
    options = parser.parse_args(arguments)
    os.chdir(PROJECT)  # the commands that are shown name files as seen from here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with alone_in(options.folder):
            return perform(options.folder, keep=options.keep)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def perform(folder: Path, *, keep: bool) -> int:
    """Play every chapter, and stop everything; return the exit code."""
    started = time.monotonic()
    programs = [str(COMMAND.parent)]
    screen = Screen(PROJECT, _environ(programs))
    with ExitStack() as stack:
        build = stack.enter_context(building())
        try:
            play_files(screen)
            screen.say(f"\n(first chapters: {since(started)})")
            wait_for(build, screen)
            found = binaries()
            programs.insert(0, str(found["kubectl"].parent))
            starting = time.monotonic()
            cluster = stack.enter_context(ControlPlane(folder.absolute() / "cluster", found))
            # The registered URL has the port, which a restart must keep.
            [port] = free_ports(1)
            server = Server(folder, ["--port", str(port)])
            stack.callback(server.stop)
            screen = Screen(PROJECT, cluster.kubectl.environ() | _environ(programs))
            screen.chapter("A Kubernetes control plane")
            screen.run("kubectl", "version")
            screen.good(f"etcd, API server, controllers, scheduler: up in {since(starting)}")
            play_cluster(Stage(screen, cluster, server, folder))
        except FAILURES as error:
            screen.bad(str(error))
            return 1
        screen.chapter(f"Every chapter succeeded, in {since(started)}")
        screen.say(NEXT)
        if keep:
            _keep(screen, cluster, programs)
        else:
            screen.say("Everything is stopped now; `make demo ARGS=--keep` leaves it running.")
    return 0


@contextmanager
def building() -> Iterator[subprocess.Popen[bytes]]:
    """Build the control plane in another process, which ends with the block."""
    command = [sys.executable, "-m", "controlplane.build"]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    build = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        yield build
    finally:
        build.terminate()
        build.wait()


def wait_for(build: subprocess.Popen[bytes], screen: Screen) -> None:
    """Wait until the control plane is built.

    Raises:
        ControlPlaneError: it cannot be built. The process has printed the reason.
    """
    if build.poll() is None:
        screen.say("The next chapters need a control plane. The first build takes some minutes ...")
    if build.wait():
        raise ControlPlaneError("There is no control plane to continue with: see above.")


def _environ(programs: Sequence[str]) -> dict[str, str]:
    return os.environ | {"PATH": os.pathsep.join([*programs, os.environ["PATH"]])}


def _keep(screen: Screen, cluster: ControlPlane, programs: Sequence[str]) -> None:
    screen.say("The cluster keeps running. To look around, in another terminal:")
    screen.say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={':'.join(programs)}:$PATH")
    screen.say(f"Ctrl-C here stops all of it (or, from elsewhere: kill {os.getpid()}).")
    with suppress(KeyboardInterrupt):
        while True:
            signal.pause()
    screen.say("\nStopping ...")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Reserve the demo's directory for this process, and remove what an earlier demo left.

    Raises:
        ControlPlaneError: another demo is running in it.
    """
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ControlPlaneError(
                f"A demo is running in {folder.absolute()} already: end it first (Ctrl-C there)."
            ) from None
        for name in ("cluster", "certs"):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / "gpufence.log").unlink(missing_ok=True)
        yield


def since(started: float) -> str:
    return f"{time.monotonic() - started:.0f} s"

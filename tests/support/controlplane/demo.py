"""The demo: `make demo`, or `python -m controlplane.demo [--keep]`.

Chapters on files while the control plane is built, then chapters in a cluster.
"""

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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError
from controlplane.gpufence import COMMAND, Controller, Replica
from controlplane.kubectl import KubectlError
from controlplane.ports import free_ports
from controlplane.screen import Screen, StoryError
from controlplane.story import Processes, Stage, play_cluster, play_files
from deploy.chart import NAMESPACE, RELEASE
from paths import PROJECT
from release.volume import Volume

WAIT = """
The next chapters need a control plane. The first build takes 15 CPU-minutes,
eight minutes on two cores, and a start takes seconds. To use your own binaries,
set KUBEBUILDER_ASSETS to their directory."""
NEXT = """\
Next, with `export PATH=$PWD/.venv/bin:$PATH`:
  1. Check your manifests:              gpufence check DIRECTORY
  2. Write a policy for your GPU nodes: gpufence policy discover > policy.yaml
  3. See what it changes in a cluster:  gpufence adopt
  4. Install, first in mode audit:      docs/operate/install.md
"""
FAILURES = (StoryError, KubectlError, TimeoutError, ControlPlaneError)


def main(arguments: list[str] | None = None) -> int:
    """Play the demo; return the exit code: 0 if every chapter succeeded, else 1."""
    parser = argparse.ArgumentParser(
        prog="demo", description="gpufence on files, and on a real control plane."
    )
    parser.add_argument("--keep", action="store_true", help="keep everything running until Ctrl-C")
    parser.add_argument("--step", action="store_true", help="wait for Enter before each chapter")
    parser.add_argument("--directory", type=Path, default=Path(".demo"), help="for its files")
    options = parser.parse_args(arguments)
    os.chdir(PROJECT)  # the displayed commands use relative paths
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with exclusive(options.directory):
            return perform(options.directory, keep=options.keep, step=options.step)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


class Started(NamedTuple):
    """A running control plane, and the seconds of its start."""

    cluster: ControlPlane
    seconds: float


def perform(directory: Path, *, keep: bool, step: bool = False) -> int:
    """Play every chapter, and stop everything; return the exit code."""
    start = time.monotonic()
    programs = [str(COMMAND.parent)]
    screen = Screen(PROJECT, _environ(programs), step=step)
    with ExitStack() as stack:
        starting = stack.enter_context(control_plane(directory))
        try:
            play_files(screen)
            if not starting.done():
                screen.say(WAIT)
            cluster, seconds = starting.result()
            programs.insert(0, str(cluster.kubectl.binary.parent))
            environ = cluster.kubectl.environ() | _environ(programs)
            screen = Screen(PROJECT, environ, step=step)
            screen.chapter("A Kubernetes control plane")
            screen.good(f"etcd, API server, controllers, scheduler: up in {seconds:.0f} s")
            processes = stack.enter_context(processes_of(cluster, directory.absolute()))
            play_cluster(Stage(screen, cluster, processes))
        except FAILURES as error:
            screen.bad(str(error))
            return 1
        screen.chapter(f"Every chapter succeeded, in {time.monotonic() - start:.0f} s")
        screen.say(NEXT)
        if keep:
            _keep(screen, cluster, programs)
        else:
            screen.say("Everything is stopped now. `make demo ARGS=--keep` leaves it running.")
    return 0


@contextmanager
def control_plane(directory: Path) -> Iterator[Future[Started]]:
    """Build and start a control plane during the block, and stop it at its end."""
    # Each component ends with the thread that started it: the pool keeps this thread.
    with building() as build, ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_start, directory, build)
        try:
            yield starting
        finally:
            build.terminate()
            with suppress(ControlPlaneError):
                starting.result().cluster.close()


@contextmanager
def processes_of(cluster: ControlPlane, directory: Path) -> Iterator[Processes]:
    """Provide what the installation runs, which the block starts, outside of the cluster."""
    [port] = free_ports(1)
    to_cluster, pods = ("--kubeconfig", str(cluster.kubeconfig)), directory / "pods"
    address = ("--url", f"https://localhost:{port}", "--owner", f"clusterrole/{RELEASE}")
    controller = Controller(
        pods, [*to_cluster, *address, "--namespace", NAMESPACE], command=[COMMAND]
    )
    mounted = Volume(pods / "tls")
    pair = ("--tls-cert", mounted.file("tls.crt"), "--tls-key", mounted.file("tls.key"))
    flags: list[str | Path] = [*to_cluster, *pair, "--drain-seconds", "0"]
    replica = Replica(pods, flags, command=[COMMAND], port=port)
    try:
        yield Processes(controller, replica, mounted)
    finally:
        replica.stop()
        controller.stop()


def _start(directory: Path, build: subprocess.Popen[bytes]) -> Started:
    """Start the control plane once it is built.

    Raises:
        ControlPlaneError: it cannot be built, and the build has printed the reason; or a component
            did not start.
    """
    if build.wait():
        raise ControlPlaneError("There is no control plane to continue with: see above.")
    start = time.monotonic()
    cluster = ControlPlane(
        directory.absolute() / "cluster", binaries(), checks_policy_types=False
    ).__enter__()
    return Started(cluster, time.monotonic() - start)


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


def _environ(programs: Sequence[str]) -> dict[str, str]:
    return os.environ | {"PATH": os.pathsep.join([*programs, os.environ["PATH"]])}


def _keep(screen: Screen, cluster: ControlPlane, programs: Sequence[str]) -> None:
    screen.say("The cluster keeps running. To look around, in another terminal:")
    screen.say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={':'.join(programs)}:$PATH")
    screen.say("gpufence doctor warns that no Deployment is here: two processes take its place.")
    screen.say(f"Ctrl-C here stops all of it (or, from elsewhere: kill {os.getpid()}).")
    with suppress(KeyboardInterrupt):
        while True:
            signal.pause()
    screen.say("\nStopping ...")


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Reserve the demo's directory for this process, and remove what an earlier demo left.

    Raises:
        ControlPlaneError: another demo is running in it.
    """
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ControlPlaneError(
                f"A demo is running in {directory.absolute()} already: end it first (Ctrl-C there)."
            ) from None
        for name in ("cluster", "pods"):
            shutil.rmtree(directory / name, ignore_errors=True)
        yield


if __name__ == "__main__":
    sys.exit(main())

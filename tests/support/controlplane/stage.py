"""Sets the demo's stage, has the story played on it, and clears up, at once or after Ctrl-C."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError
from controlplane.gpufence import COMMAND, Server
from controlplane.kubectl import KubectlError
from controlplane.screen import Screen, StoryError
from controlplane.story import Stage, play
from paths import PROJECT

FAILURES = (StoryError, KubectlError, TimeoutError, ControlPlaneError)


def main(arguments: list[str] | None = None) -> int:
    """Play the demo; return the exit code: 0 if all came out as told, else 1."""
    parser = argparse.ArgumentParser(
        prog="demo", description="gpufence on a real control plane, told as a story."
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
    """Start the control plane, play the story, and stop everything; return the exit code."""
    found = binaries()
    started = time.monotonic()
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(folder.absolute() / "cluster", found))
        server = Server(folder)
        stack.callback(server.stop)
        programs = [str(found["kubectl"].parent), str(COMMAND.parent)]
        path = os.pathsep.join([*programs, os.environ["PATH"]])
        screen = Screen(PROJECT, cluster.kubectl.environ() | {"PATH": path})
        screen.chapter("A Kubernetes control plane of your own")
        screen.run("kubectl", "version")
        screen.good(f"etcd, API server, controllers, scheduler: up in {since(started)}")
        try:
            play(Stage(screen, cluster, server, folder))
        except FAILURES as error:
            screen.bad(str(error))
            return 1
        screen.chapter(f"All as told, in {since(started)}")
        screen.say(f"The cluster's kubeconfig: {cluster.kubeconfig}")
        if not keep:
            screen.say("Everything is stopped now; `make demo ARGS=--keep` leaves it running.")
            return 0
        screen.say("It goes on running. To look around, in another terminal:")
        screen.say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={':'.join(programs)}:$PATH")
        screen.say(f"Ctrl-C here stops all of it (or, from elsewhere: kill {os.getpid()}).")
        with suppress(KeyboardInterrupt):
            while True:
                signal.pause()
        screen.say("\nStopping ...")
    return 0


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Have the demo's folder for this process alone, without what an earlier demo left in it.

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

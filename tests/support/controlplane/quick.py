"""Run `gpufence` with shorter waits than an operator can set: `quick.py ARGUMENTS...`.

Each option of this program stands for a constant of gpufence, in seconds.
"""

from __future__ import annotations

import argparse
import functools
import sys
from datetime import timedelta

from certs import secret
from webhook.controller import process
from webhook.serve import replica
from webhook.tools.cli.main import main as gpufence


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


OPTIONS = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
OPTIONS.add_argument("--ca-propagation-delay", type=_seconds, default=30)
OPTIONS.add_argument("--ca-overlap", type=_seconds, default=3600)
OPTIONS.add_argument("--poll-seconds", type=_seconds, default=5)
OPTIONS.add_argument("--reload-seconds", type=_seconds, default=2)
REPLACED = ("controller", "serve")
"""The commands that have these options."""


def main() -> int | None:
    # They have the classes that are replaced here.
    assert not {f"webhook.tools.cli.commands.{name}" for name in REPLACED} & sys.modules.keys()
    waits, arguments = OPTIONS.parse_known_args()
    sys.argv[1:] = arguments
    made = {
        secret: {
            "Timing": {
                "settle": timedelta(seconds=waits.ca_propagation_delay),
                "overlap": timedelta(seconds=waits.ca_overlap),
            }
        },
        process: {
            "ProcessOptions": {
                "poll_seconds": waits.poll_seconds,
            }
        },
        replica: {"ServeOptions": {"reload_seconds": waits.reload_seconds}},
    }
    for module, classes in made.items():
        for name, values in classes.items():
            setattr(module, name, functools.partial(getattr(module, name), **values))
    return gpufence()


if __name__ == "__main__":
    sys.exit(main())

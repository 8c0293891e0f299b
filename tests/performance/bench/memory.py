"""The memory of gpufence during a million reviews: `python -m bench.memory [REVIEWS]`, five minutes.

The server reads its policy from a file. The reviews of a GPU Pod alternate between `/mutate` and
`/validate`, over TLS with keep-alive. The last line is the growth in the second half.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench import reviews
from bench.contestants import GPUFENCE, load, running
from bench.serving import CONNECTIONS
from policies.document.shipped import PRESETS

REQUESTS = 1_000_000
_STEPS = 10
_SECONDS = 600
_POLICY = PRESETS.with_name("default.yaml")


def measure(requests: int) -> list[float]:
    """Return the resident memory in MiB, at the start and after each tenth of the requests."""
    endpoints = reviews.asked("gpu-pod")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bodies = {each: folder / f"{each}.body" for each in endpoints}
        for endpoint, path in bodies.items():
            path.write_bytes(reviews.body("gpu-pod", endpoint))
        with running(folder, flags=["--policy", str(_POLICY)]) as contestants:
            [served] = [each for each in contestants if each.name == GPUFENCE]
            held = [served.memory()]
            for _ in range(_STEPS):
                for endpoint, path in bodies.items():
                    load(
                        f"{served.url}/{endpoint}?timeout=3s",
                        folder / "certs" / "ca.crt",
                        path,
                        connections=CONNECTIONS,
                        requests=requests // (_STEPS * len(bodies)),
                        seconds=_SECONDS,
                    )
                held.append(served.memory())
    return held


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    held = measure(requests)
    for step, mebibytes in enumerate(held):
        print(f"{requests * step // _STEPS:>9,} requests: {mebibytes:.1f} MiB")
    grown = held[-1] - held[_STEPS // 2]
    print(f"of which the second half: {grown:+.1f} MiB")


if __name__ == "__main__":
    main()

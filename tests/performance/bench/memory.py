"""Measures gpufence's memory over a million reviews: `python -m bench.memory [REVIEWS]`.

It takes about five minutes. The server reads its policy from a file. Mutating and validating
reviews of a GPU Pod alternate, over TLS with keep-alive.
The last line is the growth in the second half.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench import reviews
from bench.contestants import GPUFENCE, load, running
from bench.serving import CONNECTIONS
from policies.shipped import PRESETS

REQUESTS = 1_000_000
_STEPS = 10
_SECONDS = 600
_POLICY = PRESETS.with_name("default.yaml")


def measure(requests: int) -> list[float]:
    """Return the resident memory in MiB, at the start and after each tenth of the requests."""
    endpoints = reviews.endpoints("gpu-pod")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        bodies = {endpoint: directory / f"{endpoint}.body" for endpoint in endpoints}
        for endpoint, path in bodies.items():
            path.write_bytes(reviews.body("gpu-pod", endpoint))
        with running(directory, flags=["--policy", str(_POLICY)]) as contestants:
            [gpufence] = [each for each in contestants if each.name == GPUFENCE]
            resident = [gpufence.memory()]
            for _ in range(_STEPS):
                for endpoint, path in bodies.items():
                    load(
                        f"{gpufence.url}/{endpoint}?timeout=3s",
                        directory / "certs" / "ca.crt",
                        path,
                        connections=CONNECTIONS,
                        requests=requests // (_STEPS * len(bodies)),
                        seconds=_SECONDS,
                    )
                resident.append(gpufence.memory())
    return resident


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    resident = measure(requests)
    for step, mebibytes in enumerate(resident):
        print(f"{requests * step // _STEPS:>9,} requests: {mebibytes:.1f} MiB")
    growth = resident[-1] - resident[_STEPS // 2]
    print(f"growth in the second half: {growth:+.1f} MiB")


if __name__ == "__main__":
    main()

"""Admission reviews recorded from a real API server: the requests that contestants receive."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal

Endpoint = Literal["mutate", "validate"]
Case = Literal["gpu-pod", "plain-pod", "large-pod", "megabyte-pod", "ephemeral", "deployment"]

DIRECTORY = Path(__file__).with_name("reviews")
CASES: dict[Case, str] = {
    "gpu-pod": "a GPU Pod with a sidecar",
    "plain-pod": "a plain Pod",
    "large-pod": "a GPU Pod of 40 containers",
    "megabyte-pod": "a GPU Pod of 1 MB",
    "ephemeral": "a debug container in a GPU Pod",
    "deployment": "a Deployment of GPU Pods",
}


def path(case: Case, endpoint: Endpoint) -> Path:
    return DIRECTORY / f"{case}.{endpoint}.json.gz"


def body(case: Case, endpoint: Endpoint) -> bytes:
    """Return the review; for `validate` the Pod is the one that gpufence has mutated."""
    return gzip.decompress(path(case, endpoint).read_bytes())


def endpoints(case: Case) -> tuple[Endpoint, ...]:
    """Return the endpoints that the API server calls: for a workload only /validate."""
    return ("validate",) if case == "deployment" else ("mutate", "validate")

"""What devices did: what NVIDIA's exporter (dcgm-exporter) has reported to Prometheus.

The utilization is 100 % while a kernel runs, also one that waits for other GPUs forever. After some
errors, profiling counters read 0. So what a device did is certain only where counters agree. MIG
devices have no utilization: their profiling counter counts if it has worked in the window.

Sources: the HTTP API of Prometheus (``/api/v1/query``), and ``etc/default-counters.csv`` of
NVIDIA/dcgm-exporter.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from webhook.tools.audit.waste import Limit, PodHours, Use, Window

METRIC = "DCGM_FI_DEV_GPU_UTIL"
_UTIL, _ENGINE, _MEMORY = METRIC, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
_MIG = f"({_ENGINE} unless {_UTIL})"

_MOST_STEPS = 1000
_SHORTEST_STEP = 60
_SECONDS = 60.0
_MOST_BYTES = 32 * 1024 * 1024
_MOST_ERROR = 500
_BY = "namespace, pod, exported_namespace, exported_pod, Hostname"


class PrometheusError(Exception):
    """Prometheus did not answer a query."""


def queries(window: Window) -> dict[str, str]:
    """Return the queries for the hours in which devices were idle, hung, and worked, by Pod."""
    step, of_window = _samples(window)

    def over(what: str) -> str:
        return f"sum_over_time(({what}){of_window})"

    has_worked = f"max_over_time({_ENGINE}{of_window}) > 0"
    each = {
        "idle": f"{over(f'({_UTIL} < bool 5) * ({_ENGINE} < bool 0.05)')} or "
        f"({over(f'{_MIG} < bool 0.05')} and ({has_worked}))",
        "hung": over(f"({_UTIL} >= bool 95) * ({_ENGINE} >= bool 0.05) * ({_MEMORY} < bool 0.01)"),
        "worked": f"{over(f'({_UTIL} >= bool 5) * ({_ENGINE} > bool 0)')} or "
        f"{over(f'{_MIG} >= bool 0.05')}",
    }
    return {name: f"sum by ({_BY}) ({query}) * {step} / 3600" for name, query in each.items()}


def use_of_devices(address: str, window: Window) -> dict[tuple[str, str], Use]:
    """Return what the devices of Pods did, by namespace and name of Pods.

    Samples are a minute apart, or more in a window of more than 1,000 minutes. Prometheus renames
    the exporter's labels unless it scrapes with ``honor_labels``.

    Raises:
        PrometheusError: Prometheus is not reachable, or rejects a query.
    """
    found: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for kind, query in queries(window).items():
        for pod in _read(address, query, window):
            of_pod = found[pod.namespace, pod.name]
            of_pod[kind] = of_pod.get(kind, 0.0) + pod.hours
    return {name: Use(**hours) for name, hours in found.items()}


def overtime(address: str, window: Window, limit: float) -> Limit:
    """Return a limit of the run time of Pods, in seconds, with the runs that were longer.

    Raises:
        PrometheusError: Prometheus is not reachable, or rejects the query.
    """
    step, of_window = _samples(window)
    devices = f"(count by ({_BY}) ({_UTIL} or {_ENGINE})){of_window}"
    beyond = f"clamp_min(count_over_time({devices}) * {step} - {limit:.0f}, 0)"
    found = _read(address, f"{beyond} * avg_over_time({devices}) / 3600", window)
    return Limit(limit, [pod for pod in found if pod.hours > 0])


def _samples(window: Window) -> tuple[int, str]:
    """Return the seconds between two samples, and the selector of those in the window."""
    seconds = math.ceil(window.end - window.start)
    step = max(_SHORTEST_STEP, math.ceil(seconds / _MOST_STEPS))
    return step, f"[{seconds}s:{step}s]"


def _read(address: str, query: str, window: Window) -> Iterator[PodHours]:
    """Yield the series of an instant vector at the end of the window."""
    options = urlencode({"query": query, "time": f"{window.end:.3f}"})
    url = f"{address.rstrip('/')}/api/v1/query?{options}"
    try:
        with urlopen(url, timeout=_SECONDS) as response:  # noqa: S310 - the option takes http only
            body = response.read(_MOST_BYTES)
        series: list[dict[str, Any]] = json.loads(body)["data"]["result"]
    except HTTPError as error:
        problem = error.read(_MOST_ERROR).decode(errors="replace").strip()
        raise PrometheusError(f"HTTP {error.code}: {problem}") from error
    except (OSError, HTTPException) as error:
        raise PrometheusError(str(getattr(error, "reason", error))) from error
    except (ValueError, LookupError, TypeError) as error:
        raise PrometheusError("the answer is not that of a query of Prometheus") from error
    for each in series:
        of = each["metric"]
        prefix = "exported_" if "exported_pod" in of else ""
        namespace, pod = of.get(f"{prefix}namespace", ""), of.get(f"{prefix}pod", "")
        yield PodHours(namespace, pod, of.get("Hostname", ""), float(each["value"][1]))

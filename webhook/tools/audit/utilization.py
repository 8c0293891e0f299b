"""The utilization of devices: what NVIDIA's exporter (dcgm-exporter) has reported to Prometheus.

Sources: the HTTP API of Prometheus (``/api/v1/query``), and ``etc/default-counters.csv`` of
NVIDIA/dcgm-exporter. The exporter has no utilization of MIG devices.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from webhook.tools.audit.waste import Window

METRIC = "DCGM_FI_DEV_GPU_UTIL"
IDLE_PERCENT = 5
"""A device below this utilization is idle."""

_MOST_STEPS = 1000
_SHORTEST_STEP = 60
_SECONDS = 60.0
_MOST_BYTES = 32 * 1024 * 1024
_MOST_ERROR = 500


class PrometheusError(Exception):
    """Prometheus did not answer a query."""


def idle_hours(address: str, window: Window) -> dict[tuple[str, str], float]:
    """Return the device-hours without work in the window, by namespace and name of Pods.

    Samples are a minute apart, or more in a window of more than 1,000 minutes. Prometheus renames
    the exporter's labels unless it scrapes with ``honor_labels``.

    Raises:
        PrometheusError: Prometheus is not reachable, or rejects the query.
    """
    length = math.ceil(window.end - window.start)
    step = max(_SHORTEST_STEP, math.ceil(length / _MOST_STEPS))
    idle = f"sum_over_time(({METRIC} < bool {IDLE_PERCENT})[{length}s:{step}s])"
    labels = "namespace, pod, exported_namespace, exported_pod"
    query = {"query": f"sum by ({labels}) ({idle})", "time": f"{window.end:.3f}"}
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for series in _read(f"{address.rstrip('/')}/api/v1/query?{urlencode(query)}"):
        of = series["metric"]
        prefix = "exported_" if "exported_pod" in of else ""
        name = of.get(f"{prefix}namespace", ""), of.get(f"{prefix}pod", "")
        found[name] += float(series["value"][1]) * step / 3600
    return dict(found)


def _read(url: str) -> list[dict[str, Any]]:
    """Return the series of an instant vector."""
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
    return series

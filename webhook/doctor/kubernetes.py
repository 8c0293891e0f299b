"""Whether the API server is new enough, and whether it serves the claims that gpufence reads."""

from __future__ import annotations

import re

from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn

_CHECK = "Kubernetes"
_OLDEST = (1, 30)
_CLAIMS = "v1"


def check(installed: Installation) -> Line:
    """Return a line on the version of the API server."""
    parts = re.match(r"v(\d+)\.(\d+)\.", installed.version)
    if parts is None:
        problem = installed.forbidden.get("version") or f"it says {installed.version!r}"
        return skip(_CHECK, f"the version of the API server is unknown: {problem}")
    if (int(parts[1]), int(parts[2])) < _OLDEST:
        return fail(
            _CHECK,
            f"{installed.version} is older than {'.'.join(map(str, _OLDEST))}",
            f"Upgrade to Kubernetes {'.'.join(map(str, _OLDEST))} or newer",
        )
    if "API groups" in installed.forbidden or _CLAIMS in installed.claim_versions:
        return ok(_CHECK, installed.version)
    if not installed.claim_versions:
        return ok(_CHECK, f"{installed.version}, without dynamic resource allocation")
    served = ", ".join(installed.claim_versions)
    return warn(
        _CHECK,
        f"{installed.version} serves resource.k8s.io only as {served}: a Pod that requests devices "
        "through a resource claim does not count as a GPU Pod",
        "Upgrade to Kubernetes 1.34 or newer, or request devices as extended resources",
    )

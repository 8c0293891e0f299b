"""Whether the API server is new enough, and whether it serves the claims that gpufence reads."""

from __future__ import annotations

import re

from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn

_CHECK = "Kubernetes"
_OLDEST = (1, 30)
_CLAIMS = "v1"


def check(found: Installation) -> Line:
    """Return a line on the version of the API server."""
    parts = re.match(r"v(\d+)\.(\d+)\.", found.version)
    if parts is None:
        problem = found.forbidden.get("version") or f"it says {found.version!r}"
        return skip(_CHECK, f"the version of the API server is unknown: {problem}")
    if (int(parts[1]), int(parts[2])) < _OLDEST:
        return fail(
            _CHECK,
            f"{found.version} is older than {'.'.join(map(str, _OLDEST))}",
            f"Upgrade to Kubernetes {'.'.join(map(str, _OLDEST))} or newer",
        )
    if "API groups" in found.forbidden or _CLAIMS in found.claim_versions:
        return ok(_CHECK, found.version)
    if not found.claim_versions:
        return ok(_CHECK, f"{found.version}, without dynamic resource allocation")
    served = ", ".join(found.claim_versions)
    return warn(
        _CHECK,
        f"{found.version} serves resource.k8s.io only as {served}: a Pod that requests devices "
        "through a resource claim does not count as a GPU Pod",
        "Upgrade to Kubernetes 1.34 or newer, or request devices as extended resources",
    )

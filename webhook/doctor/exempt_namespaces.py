"""Whether the namespaces that are exempt by name have a workload that needs the exemption."""

from __future__ import annotations

from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, ok, skip, warn
from webhook.kube.client import FORBIDDEN, KubeApi
from webhook.kube.errors import ApiError

_CHECK = "exempt namespaces"
_KINDS = ("daemonsets", "deployments", "statefulsets")
_REMEDIATION = (
    "Delete each namespace that the cluster does not need, or remove it from exemptions.namespaces "
    "of the policy"
)


async def check(api: KubeApi, installed: Installation) -> Line:
    """Return whether each exempt namespace that exists has a workload of an operator or an agent.

    gpufence checks no Pod in such a namespace. ``kube-system`` and the namespaces of gpufence are
    always needed.
    """
    if installed.policy is None:
        return skip(_CHECK, "the policy is unknown, and it names the namespaces")
    exempt = installed.policy.exemptions.namespaces | installed.excluded_namespaces
    used: list[str] = []
    unused: list[str] = []
    try:
        for name in sorted(
            exempt - {"kube-system", installed.namespace} - installed.other_releases
        ):
            if await api.read(f"/api/v1/namespaces/{name}") is not None:
                (used if await _has_workload(api, name) else unused).append(name)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return skip(_CHECK, f"cannot read them: {error}")
    if unused:
        names = ", ".join(unused)
        return warn(
            _CHECK,
            f"no DaemonSet, Deployment or StatefulSet runs in {names}: gpufence checks no Pod "
            "there, only because of the name",
            _REMEDIATION,
        )
    return ok(_CHECK, f"each has a workload: {', '.join(used)}" if used else "no other exists")


async def _has_workload(api: KubeApi, namespace: str) -> bool:
    for kind in _KINDS:
        listed = await api.read(f"/apis/apps/v1/namespaces/{namespace}/{kind}", {"limit": "1"})
        if listed and listed.get("items"):
            return True
    return False

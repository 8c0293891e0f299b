"""The FencePolicy that the replicas of a cluster follow.

Both webhook configurations of an installation name it. Nothing here guesses: a cluster that does
not say which policy it follows is an error that lists what there is.
"""

from __future__ import annotations

from collections import defaultdict

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import is_subdomain
from policies.policy import Policy
from policies.wording import listing
from webhook.active_policy import PATH
from webhook.controller.text.objects import FENCE_POLICY
from webhook.documents.document import InputError
from webhook.documents.policy_files import live_policy
from webhook.kube.client import KubeApi
from webhook.kube.errors import FORBIDDEN, ApiError
from webhook.registered import KINDS, is_own

_CHOOSE = "Choose a FencePolicy with --fence-policy"
_KINDS = " and ".join(path.rpartition("/")[2] for path in KINDS.values())
_UNNAMED = (
    f"names no FencePolicy (annotation {FENCE_POLICY}): an earlier version of gpufence wrote it, "
    "or its replicas read a file"
)


async def cluster_policy(api: KubeApi, name: str | None, or_file: str) -> tuple[str, Policy]:
    """Return the name and the policy of a FencePolicy: the named one, or what replicas follow.

    ``or_file`` ends a remediation with what else the caller accepts.

    Raises:
        InputError: it is unknown, does not exist or is invalid, or the account may not read it.
    """
    problem = f"the cluster has no FencePolicy {name}"
    if name is None:
        name = await followed(api, or_file)
        problem = f"replicas follow FencePolicy {name}, which does not exist"
    cure = f"Use an account that may get fencepolicies (ClusterRole view){or_file}"
    obj = await _read(api, f"{PATH}/{name}", cure)
    if obj is None:
        existing, is_any = await fence_policies(api)
        cure = f"Create it with kubectl apply{', choose another with --fence-policy' * is_any}"
        raise InputError([f"{problem}. {existing}. {cure}{or_file}."])
    return name, live_policy(name, obj)


async def followed(api: KubeApi, or_file: str = "") -> str:
    """Return the name of the FencePolicy that replicas follow, as webhook configurations say.

    Raises:
        InputError: they name none or several, there are none, or the account may not list them.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    cure = f"{_CHOOSE}, use an account that may list {_KINDS}{or_file}"
    for path in KINDS.values():
        for item in ((await _read(api, path, cure)) or {}).get("items") or ():
            if any(is_own(webhook.get("name")) for webhook in item.get("webhooks") or ()):
                named = (item["metadata"].get("annotations") or {}).get(FENCE_POLICY) or ""
                names[item["metadata"]["name"]] |= {named} if is_subdomain(named) else set()
    different: set[str] = set().union(*names.values())
    if len(different) == 1 and all(names.values()):
        return different.pop()
    said = "; ".join(
        f"webhook configuration {each} "
        + (f"names FencePolicy {listing(sorted(own))}" if own else _UNNAMED)
        for each, own in sorted(names.items())
    )
    said = said or "no webhook of gpufence is registered"
    existing, is_any = await fence_policies(api)
    cure = _CHOOSE if is_any else "Install gpufence"
    problem = f"the FencePolicy that replicas follow is unknown: {said}"
    raise InputError([f"{problem}. {existing}. {cure}{or_file}."])


async def fence_policies(api: KubeApi) -> tuple[str, bool]:
    """Return which FencePolicies the cluster has, and whether there may be any."""
    try:
        listed = await api.read(PATH)
    except ApiError as error:
        return f"Which FencePolicies exist is unknown: {error}", True
    names = sorted(item["metadata"]["name"] for item in (listed or {}).get("items") or ())
    return f"FencePolicies in the cluster: {', '.join(names) or 'none'}", bool(names)


async def _read(api: KubeApi, path: str, cure: str) -> JSONObject | None:
    """Return an object. Raise an InputError with the cure if the account may not read it."""
    try:
        return await api.read(path)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        raise InputError([f"{error}. {cure}."]) from error

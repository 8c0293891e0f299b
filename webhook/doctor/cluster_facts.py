"""Whether the replicas may read the cluster facts that the policy's rules need."""

from __future__ import annotations

from collections.abc import AsyncIterator

from policies.needs import Fact, needed_facts
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip
from webhook.kube.client import FORBIDDEN, KubeApi
from webhook.kube.errors import NOT_FOUND, ApiError

_CHECK = "cluster facts"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_GROUPS: dict[Fact, str] = {
    "nodes": "",
    "namespaces": "",
    "runtimeclasses": "node.k8s.io",
    "deviceclasses": "resource.k8s.io",
}
_ENABLE = "Set clusterFacts: true in the chart, or run serve with --node-facts"
_GRANT = "Add the rule to the ClusterRole of gpufence's service account, as in the chart"


async def check(api: KubeApi, installed: Installation) -> AsyncIterator[Line]:
    """Yield a line for all facts, or one for each that the replicas cannot know."""
    if installed.policy is None or installed.deployed is None or installed.deployment is None:
        yield skip(_CHECK, "the policy or the command line of the replicas is unknown")
        return
    needed = needed_facts(installed.policy)
    if not installed.deployed.registration.with_nodes and needed:
        yield fail(_CHECK, f"they are off: {'; '.join(needed.values())}", _ENABLE)
        return
    account = installed.deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
    user = f"system:serviceaccount:{installed.namespace}:{account}"
    denied = False
    for fact, consequence in needed.items():
        try:
            allowed = [await _may(api, user, fact, verb) for verb in ("list", "watch")]
        except ApiError as error:
            if error.status not in (FORBIDDEN, NOT_FOUND):
                raise
            yield skip(_CHECK, f"the rights of {user} cannot be reviewed: {error}")
            return
        if not all(allowed):
            denied = True
            yield fail(_CHECK, f"{user} may not list and watch {fact}: {consequence}", _GRANT)
    if not denied:
        yield ok(_CHECK, f"{user} may read {', '.join(needed)}" if needed else "none are needed")


async def _may(api: KubeApi, user: str, fact: Fact, verb: str) -> bool:
    attributes = {"group": _GROUPS[fact], "resource": fact, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": _groups(user), "resourceAttributes": attributes},
    }
    answer = await api.create(_REVIEWS, review)
    return bool(answer.get("status", {}).get("allowed"))


def _groups(user: str) -> list[str]:
    """Return the groups of a service account."""
    namespace = user.split(":")[2]
    accounts = "system:serviceaccounts"
    return [accounts, f"{accounts}:{namespace}", "system:authenticated"]

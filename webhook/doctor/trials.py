"""Trials: Pods that are created as a dry run, so that API servers do all but store them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from policies.engine import decide
from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.facts import Request
from policies.kubernetes.names import NameSet
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import FENCING_EFFECTS
from policies.policy import Policy, Pool
from policies.rules.check_pool_trespass import ID as TRESPASS
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip
from webhook.kube.client import KubeApi
from webhook.kube.errors import ApiError
from webhook.registration.configurations import DOMAIN

_IMAGE = "registry.k8s.io/pause:3.10"
_NOT_CALLED = (
    "See the lines above about configurations, caBundle and replicas; the namespace may be left out"
)
_UNREACHED = "See the lines above about replicas, endpoints and certificates"


async def check(api: KubeApi, found: Installation, namespace: str) -> AsyncIterator[Line]:
    """Yield whether a GPU Pod is changed, and whether each line of the fence rejects a trespasser.

    Nothing is stored. If something else rejects the Pods (a quota, another webhook), the trial says
    so: it leaves open what gpufence does.
    """
    policy = found.policy
    if policy is None:
        yield skip("trials", "what is to be expected of them follows from the policy")
        return
    if namespace in policy.exemptions.namespaces:
        yield skip("trials", f"the policy exempts namespace {namespace}", "Give --try-in NAME")
        return
    excluded = found.deployed.registration.excluded_namespaces if found.deployed else frozenset()
    if namespace in ALWAYS_EXCLUDED | excluded:
        problem = f"API servers never ask about namespace {namespace}"
        yield skip("trials", problem, "Give --try-in NAME")
        return
    for pool in policy.pools:
        yield await _gpu_pod(api, policy, pool, namespace)
        yield await _trespasser(api, policy, pool, namespace)
        if found.admission_policies and any(found.admission_policies.values()):
            yield await _in_tree_trespasser(api, policy, pool, namespace)


async def _gpu_pod(api: KubeApi, policy: Policy, pool: Pool, namespace: str) -> Line:
    check = f"GPU Pod, pool {pool.name}"
    resource = _resource(pool.resources)
    if not resource:
        return skip(check, "is asked for by a claim only, of which a dry run has none")
    pod = _pod(namespace, "gpufence-doctor-gpu", {"limits": {resource: "1"}})
    request = Request(namespace=namespace)
    before = decide(pod, policy, request)
    if not before.allowed:
        return skip(check, f"the policy itself refuses it: {before.findings[0].reason}")
    if before.mutated is pod:
        return skip(check, "the policy adds nothing to it, so nothing can be seen")
    try:
        created = await _create(api, pod)
    except ApiError as error:
        return _refused(check, error)
    # Nothing left to add: so it has been added.
    if decide(created, policy, request).verdict != "allowed":
        return fail(check, f"was created in {namespace} as it was, not changed", _NOT_CALLED)
    return ok(check, f"is changed as the policy says, in {namespace}")


async def _trespasser(api: KubeApi, policy: Policy, pool: Pool, namespace: str) -> Line:
    """Try a trespasser that only the webhook rejects.

    The admission policies do not judge a toleration with a node selection by other labels.
    """
    toleration = _toleration(pool)
    if not toleration:
        return skip(
            f"trespasser, pool {pool.name}", "it has no taint that the webhook alone judges"
        )
    reaching = {**toleration, "nodeSelector": {"gpufence.dev/doctor": "true"}}
    return await _try_trespasser(api, policy, pool, namespace, reaching, "webhook")


async def _in_tree_trespasser(api: KubeApi, policy: Policy, pool: Pool, namespace: str) -> Line:
    """Try a trespasser that the admission policies reject without the webhook."""
    reaching = _toleration(pool) or {"nodeSelector": dict(pool.node_selector)}
    return await _try_trespasser(api, policy, pool, namespace, reaching, "admission policy")


async def _try_trespasser(
    api: KubeApi, policy: Policy, pool: Pool, namespace: str, reaching: JSONObject, line: str
) -> Line:
    check = f"trespasser, pool {pool.name}"
    if line != "webhook":
        check += f", by {line}"
    action = policy.actions_in(namespace)[TRESPASS]
    if action != "enforce":
        return skip(check, f"the policy has {TRESPASS} on {action} in {namespace}")
    pod = _pod(namespace, "gpufence-doctor-trespasser", {})
    pod["spec"] |= reaching
    if decide(pod, policy, Request(namespace=namespace)).allowed:
        return skip(check, f"the policy admits it to {namespace}: it has an exception")
    try:
        await _create(api, pod)
    except ApiError as error:
        if _denied_by(error) == line:
            return ok(check, f"is rejected by the {line}, in {namespace}")
        return _refused(check, error)
    return fail(check, f"was let into {namespace}", _NOT_CALLED)


def _refused(check: str, error: ApiError) -> Line:
    """Explain why a Pod was denied against the expectation."""
    if "failed calling webhook" in str(error) and DOMAIN in str(error):
        return fail(check, f"API servers do not reach gpufence: {error}", _UNREACHED)
    if _denied_by(error):
        return fail(check, f"gpufence rejects it: {error}", "Compare its policy with --policy")
    return skip(check, f"others refuse it: {error}", "Give --try-in NAME, one that takes it")


def _denied_by(error: ApiError) -> str:
    """Return which line of the fence denied a Pod; empty if neither did."""
    text = str(error)
    if DOMAIN in text and "denied the request" in text:
        return "webhook"
    return "admission policy" if f"denied request: {TRESPASS}:" in text else ""


async def _create(api: KubeApi, pod: JSONObject) -> JSONObject:
    namespace = pod["metadata"]["namespace"]
    created = await api.create(f"/api/v1/namespaces/{namespace}/pods", pod, dry_run=True)
    return {"apiVersion": "v1", "kind": "Pod", **created}


def _pod(namespace: str, name: str, resources: JSONObject) -> JSONObject:
    """Return a Pod that meets Pod Security's restricted profile by itself, but for its devices."""
    confined = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": _IMAGE,
        "resources": resources,
        "securityContext": confined,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container]},
    }


def _toleration(pool: Pool) -> JSONObject:
    """Return what has a Pod tolerate a fencing taint of the pool; empty if it has none."""
    for taint in pool.taints:
        if taint.effect in FENCING_EFFECTS:
            toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            return {"tolerations": [toleration]}
    return {}


def _resource(names: NameSet) -> str:
    """Return a resource of the pool; of a prefix only, the name of one that could be."""
    if names.exact:
        return min(names.exact)
    return f"{names.prefixes[0]}1" if names.prefixes else ""

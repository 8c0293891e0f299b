"""Trials: Pods that the doctor creates as a dry run, which API servers do not store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from policies.engine import decide
from policies.facts import Request
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import REQUIRED
from policies.kubernetes.selector import Selector, requirement
from policies.policy import Policy, Pool
from policies.rules.check_device_leak import ID as LEAK
from policies.rules.check_pool_trespass import ID as TRESPASS
from webhook.controller.text.objects import DOMAIN, POLICY_KIND
from webhook.kube.errors import ApiError
from webhook.kube.writer import KubeWriter
from webhook.tools.doctor import DoctorLine, fail, ok, skip
from webhook.tools.doctor.installation import Installation

_IMAGE = "registry.k8s.io/pause:3.10"
_NOT_CALLED = (
    "Check the lines above about configurations, caBundle and replicas, and whether a "
    "configuration excludes the namespace"
)
_UNREACHED = "Check the lines above about replicas, endpoints and certificates"


async def check(
    api: KubeWriter, installed: Installation, namespace: str
) -> AsyncIterator[DoctorLine]:
    """Yield whether gpufence changes a GPU Pod, and whether webhook and policies deny a trespasser.

    Nothing is stored. If something else rejects a Pod (a quota, another webhook), the trial is
    skipped with that error.
    """
    policy = installed.policy
    if policy is None:
        problem = "the policy is unknown, and the expected results depend on it"
        yield DoctorLine("skip", "trials", problem)
        return
    if problem := untried(policy, installed, namespace):
        yield DoctorLine("skip", "trials", problem, "Set --try-in NAME")
        return
    if "nvidia.com" in policy.vendors:
        # A Pod that requests no device, and all devices from NVIDIA's runtime.
        pod = trial_pod(namespace, "gpufence-doctor-leak", {})
        pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        line = await _denied(api, policy, pod, LEAK, ("webhook", "admission policy"))
        yield line._replace(check="device leak")
    for pool in policy.pools:
        line = await _gpu_pod(api, policy, pool, namespace)
        yield line._replace(check=f"GPU Pod, pool {pool.name}")
        check, toleration = f"trespasser, pool {pool.name}", _toleration(pool)
        if toleration:
            # The admission policies do not judge a toleration next to other labels.
            placement = {**toleration, "nodeSelector": {"gpufence.dev/doctor": "true"}}
            line = await _trespasser(api, policy, namespace, placement, "webhook")
            yield line._replace(check=check)
        else:
            yield DoctorLine("skip", check, "the pool has no taint")
        if installed.admission_policies.get(POLICY_KIND):
            placement = toleration or _selection(pool)
            line = await _trespasser(api, policy, namespace, placement, "admission policy")
            yield line._replace(check=f"{check}, by admission policy")


def untried(policy: Policy, installed: Installation, namespace: str) -> str:
    """Return why Pods in the namespace show nothing of the policy; empty if they do."""
    if namespace in policy.exemptions.namespaces:
        return f"the policy exempts namespace {namespace}"
    if namespace in installed.excluded_namespaces:
        return f"API servers do not call gpufence for namespace {namespace}"
    mode = policy.actions_in(namespace).mode
    if mode != "enforce":
        return f"gpufence changes and denies nothing in {namespace}: the policy's mode is {mode}"
    return ""


def gpu_pod(policy: Policy, pool: Pool, namespace: str) -> JSONObject | None:
    """Return a Pod that requests one device of the pool; ``None`` if that takes a claim."""
    resource = _resource(pool)
    if not resource:
        return None
    pod = trial_pod(namespace, "gpufence-doctor-gpu", {"limits": {resource: "1"}})
    if len(policy.pools_of_resource(resource)) > 1:
        pod["spec"] |= _selection(pool)
    return pod


async def _gpu_pod(api: KubeWriter, policy: Policy, pool: Pool, namespace: str) -> DoctorLine:
    pod = gpu_pod(policy, pool, namespace)
    if pod is None:
        return skip("the pool offers only DeviceClasses, and a dry run has no claim")
    request = Request(namespace=namespace)
    before = decide(pod, policy, request)
    if not before.allowed:
        return skip(f"the policy denies it: {before.findings[0].reason}")
    if before.mutated is pod:
        return skip("the policy adds nothing to it")
    try:
        created = await _create(api, pod)
    except ApiError as error:
        return _rejected(error)
    # Nothing is left to add, so gpufence has added it.
    if decide(created, policy, request).verdict != "allowed":
        return fail(f"gpufence did not change it, in {namespace}", _NOT_CALLED)
    return ok(f"gpufence changes it, in {namespace}")


async def _trespasser(
    api: KubeWriter, policy: Policy, namespace: str, placement: JSONObject, line: str
) -> DoctorLine:
    """Try a Pod that only this line of the two rejects."""
    pod = trial_pod(namespace, "gpufence-doctor-trespasser", {})
    pod["spec"] |= placement
    return await _denied(api, policy, pod, TRESPASS, (line,))


async def _denied(
    api: KubeWriter, policy: Policy, pod: JSONObject, rule: str, lines: Sequence[str]
) -> DoctorLine:
    """Return whether one of the lines of defense denies a Pod because of the rule."""
    namespace = pod["metadata"]["namespace"]
    action = policy.actions_in(namespace)[rule]
    if action != "enforce":
        return skip(f"the policy sets {rule} to {action} in {namespace}")
    if decide(pod, policy, Request(namespace=namespace)).allowed:
        return skip(f"an exception of the policy allows it in {namespace}")
    try:
        await _create(api, pod)
    except ApiError as error:
        if (line := _denied_by(error)) in lines:
            return ok(f"the {line} denies it, in {namespace}")
        return _rejected(error)
    return fail(f"gpufence did not deny it, in {namespace}", _NOT_CALLED)


def _rejected(error: ApiError) -> DoctorLine:
    """Return the line for a Pod that was rejected unexpectedly."""
    if "failed calling webhook" in str(error) and DOMAIN in str(error):
        return fail(f"the API server cannot call gpufence: {error}", _UNREACHED)
    if _denied_by(error):
        return fail(f"gpufence denies it: {error}", "Compare the active policy with --policy")
    return skip(f"rejected, but not by gpufence: {error}", "Set --try-in to another namespace")


def _denied_by(error: ApiError) -> str:
    """Return whether the webhook or an admission policy denied a Pod; empty if neither did."""
    text = str(error)
    if DOMAIN in text and "denied the request" in text:
        return "webhook"
    own = any(f"denied request: {rule}:" in text for rule in (TRESPASS, LEAK))
    return "admission policy" if own else ""


async def _create(api: KubeWriter, pod: JSONObject) -> JSONObject:
    namespace = pod["metadata"]["namespace"]
    created = await api.create(f"/api/v1/namespaces/{namespace}/pods", pod, dry_run=True)
    return {"apiVersion": "v1", "kind": "Pod", **created}


def trial_pod(namespace: str, name: str, resources: JSONObject) -> JSONObject:
    """Return a Pod that meets the Pod Security profile restricted."""
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


def _selection(pool: Pool) -> JSONObject:
    """Return the fields of a Pod that selects the nodes of the pool."""
    terms = {"nodeSelectorTerms": [_term_of(pool.selector)]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


def _toleration(pool: Pool) -> JSONObject:
    """Return a toleration for the first taint of the pool that repels Pods; empty without one."""
    if not pool.fence:
        return {}
    taint = pool.fence[0]
    return {"tolerations": [{"key": taint.key, "operator": "Exists", "effect": taint.effect}]}


def _resource(pool: Pool) -> str:
    """Return a resource of the pool; for a prefix, a possible name. Empty if it has none."""
    names = pool.resources
    if names.exact:
        whole = [name for name in names.exact if name not in pool.fractional_resources]
        return min(whole or names.exact)
    return f"{names.prefixes[0]}1" if names.prefixes else ""


def _term_of(selector: Selector) -> dict[str, Any]:
    """Return the selector as a node selector term, for manifests."""
    expressions = (requirement(key, values) for key, values in selector.items())
    return {
        "matchExpressions": [
            {"key": each.key, "operator": each.operator}
            | ({"values": each.values} if each.values else {})
            for each in expressions
        ]
    }

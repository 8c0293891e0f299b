"""Trials: Pods that the doctor creates as a dry run, which API servers do not store."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.objects import JSONObject, mapping
from policies.kubernetes.paths import descend
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Actions, Policy, Pool
from policies.requests import Scope
from policies.rules.check_device_leak import ID as LEAK
from policies.rules.check_pool_trespass import ID as TRESPASS
from webhook.cluster.state import NAMESPACES
from webhook.controller.text.objects import BINDING_KIND, POLICY_KIND, all_names
from webhook.kube.errors import ApiError
from webhook.kube.writer import KubeWriter
from webhook.registered import DOMAIN, KINDS
from webhook.tools.doctor import DoctorLine, Status, fail, ok, skip, unknown
from webhook.tools.doctor.installation import Installation

_IMAGE = "registry.k8s.io/pause:3.10"
_NOT_CALLED = (
    "Check the lines above about configurations, caBundle and replicas, and whether a "
    "configuration excludes the namespace"
)
_DENIED = (
    "Compare the active policy with --policy, and see which webhooks change the Pod after gpufence "
    "(line other webhooks)"
)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request")
_WEBHOOK = re.compile(r'(?:admission|calling) webhook "([^"]+)"')
_ELSEWHERE = "Set --try-in to another namespace"
_UNREACHED = "Check the lines above about replicas, endpoints and certificates"


async def check(
    api: KubeWriter, installed: Installation, namespace: str
) -> AsyncIterator[DoctorLine]:
    """Yield whether gpufence changes a GPU Pod, and whether webhook and policies deny a trespasser.

    Nothing is stored. If something else rejects a Pod, the line names it.
    """
    policy = installed.policy
    if policy is None:
        problem = "the policy is unknown, and the expected results depend on it"
        yield DoctorLine("skip", "trials", problem)
        return
    labels = await _labels_of(api, namespace)
    actions = policy.actions_in(namespace, labels)
    if problem := _untried(policy, installed, namespace, actions):
        # The mode of the whole policy has a line of its own.
        is_mode = actions.mode == policy.mode != "enforce"
        status: Status = "skip" if is_mode else "unknown"
        yield DoctorLine(status, "trials", problem, "Set --try-in NAME")
        return
    scope = Scope(policy, Request(namespace=namespace), Facts(namespace_labels=labels))
    trials = _Trials(api, installed, scope)
    if "nvidia.com" in policy.vendors:
        # A Pod that requests no device, and all devices from NVIDIA's runtime.
        pod = _trial_pod(namespace, "gpufence-doctor-leak", {})
        pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        line = await trials.denied(pod, LEAK, ("webhook", "admission policy"))
        yield line._replace(check="device leak")
    for pool in policy.pools:
        line = await trials.gpu_pod(pool)
        yield line._replace(check=f"GPU Pod, pool {pool.name}")
        check, toleration = f"trespasser, pool {pool.name}", _toleration(pool)
        if toleration:
            # The admission policies do not judge a toleration next to other labels.
            placement = {**toleration, "nodeSelector": {"gpufence.dev/doctor": "true"}}
            line = await trials.trespasser(placement, "webhook")
            yield line._replace(check=check)
        else:
            yield DoctorLine("skip", check, "the pool has no taint")
        if installed.admission_policies.get(POLICY_KIND):
            placement = toleration or _selection(pool)
            line = await trials.trespasser(placement, "admission policy")
            yield line._replace(check=f"{check}, by admission policy")


async def _labels_of(api: KubeWriter, namespace: str) -> Mapping[str, str] | None:
    """Return the labels of a namespace; ``None`` if they cannot be read."""
    try:
        found = await api.read(f"{NAMESPACES.path}/{namespace}")
    except ApiError:
        return None
    return mapping(descend(found, ("metadata", "labels")))


def _untried(policy: Policy, installed: Installation, namespace: str, actions: Actions) -> str:
    """Return why Pods in the namespace show nothing of the policy; empty if they do."""
    if namespace in policy.exemptions.namespaces:
        return f"the policy exempts namespace {namespace}"
    if namespace in installed.excluded_namespaces:
        return f"API servers do not call gpufence for namespace {namespace}"
    if actions.mode != "enforce":
        return (
            f"gpufence changes and denies nothing in {namespace}: the policy's mode is "
            f"{actions.mode}"
        )
    return ""


class _Trials:
    """Creates Pods in a namespace as a dry run."""

    def __init__(self, api: KubeWriter, installed: Installation, scope: Scope) -> None:
        self._api = api
        self._installed = installed
        self._scope = scope
        self._namespace = scope.request.namespace

    def _decide(self, pod: JSONObject) -> Decision:
        return decide(pod, self._scope.policy, self._scope.request, self._scope.facts)

    async def gpu_pod(self, pool: Pool) -> DoctorLine:
        """Return whether gpufence changes a GPU Pod."""
        resource = _resource(pool)
        if not resource:
            return skip("the pool offers only DeviceClasses, and a dry run has no claim")
        pod = _trial_pod(self._namespace, "gpufence-doctor-gpu", {"limits": {resource: "1"}})
        if len(self._scope.policy.pools_of_resource(resource)) > 1:
            pod["spec"] |= _selection(pool)
        before = self._decide(pod)
        if not before.allowed:
            return unknown(f"the policy denies it: {before.findings[0].reason}", _ELSEWHERE)
        if before.mutated is pod:
            return skip("the policy adds nothing to it")
        try:
            created = await self._create(pod)
        except ApiError as error:
            return self._rejected(error)
        # Nothing is left to add, so gpufence has added it.
        if self._decide(created).verdict != "allowed":
            return fail(f"gpufence did not change it, in {self._namespace}", _NOT_CALLED)
        return ok(f"gpufence changes it, in {self._namespace}")

    async def trespasser(self, placement: JSONObject, line: str) -> DoctorLine:
        """Try a Pod that only this line of the two rejects."""
        pod = _trial_pod(self._namespace, "gpufence-doctor-trespasser", {})
        pod["spec"] |= placement
        return await self.denied(pod, TRESPASS, (line,))

    async def denied(self, pod: JSONObject, rule: str, lines: Sequence[str]) -> DoctorLine:
        """Return whether one of the lines of defense denies a Pod because of the rule."""
        action = self._scope.actions[rule]
        if action != "enforce":
            return skip(f"the policy sets {rule} to {action} in {self._namespace}")
        if self._decide(pod).allowed:
            problem = f"an exception of the policy allows it in {self._namespace}"
            return unknown(problem, _ELSEWHERE)
        try:
            await self._create(pod)
        except ApiError as error:
            if (line := self._denied_by(error)) in lines:
                return ok(f"the {line} denies it, in {self._namespace}")
            return self._rejected(error)
        return fail(f"gpufence did not deny it, in {self._namespace}", _NOT_CALLED)

    def _rejected(self, error: ApiError) -> DoctorLine:
        """Return the line for a Pod that was rejected unexpectedly."""
        text = str(error)
        if "failed calling webhook" in text and DOMAIN in text:
            return fail(f"the API server cannot call gpufence: {text}", _UNREACHED)
        if self._denied_by(error):
            return fail(f"gpufence denies it: {text}", _DENIED)
        if found := _POLICY.search(text):
            policy, binding = found.groups()
            kubectl = f"kubectl delete {BINDING_KIND} {binding} --ignore-not-found"
            cure = f"Run {kubectl}, or have {policy} admit such Pods"
            return fail(f"rejected by {POLICY_KIND} {policy}: {text}", cure)
        if found := _WEBHOOK.search(text):
            kubectl = f"kubectl delete {self._owner(found[1])} --ignore-not-found"
            cure = f"Run {kubectl}, or have it admit such Pods"
            return fail(f"rejected by webhook {found[1]}: {text}", cure)
        return unknown(f"rejected, but not by gpufence: {text}", _ELSEWHERE)

    def _denied_by(self, error: ApiError) -> str:
        """Return whether the webhook or an admission policy of the release denied a Pod."""
        text = str(error)
        if DOMAIN in text and "denied the request" in text:
            return "webhook"
        policy = _POLICY.search(text)
        is_own = policy and policy[1] in all_names(self._installed.name)
        return "admission policy" if is_own else ""

    def _owner(self, webhook: str) -> str:
        """Return the configuration that has the webhook: kind and name."""
        live = self._installed.live
        for kind, name in ((each, name) for each in KINDS for name in live.get(each, {})):
            if any(each.get("name") == webhook for each in live[kind][name].get("webhooks") or ()):
                return f"{kind} {name}"
        return f"the configuration of {webhook}"

    async def _create(self, pod: JSONObject) -> JSONObject:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        created = await self._api.create(path, pod, dry_run=True)
        return {"apiVersion": "v1", "kind": "Pod", **created}


def _trial_pod(namespace: str, name: str, resources: JSONObject) -> JSONObject:
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
    terms = {"nodeSelectorTerms": [_term_of(pool)]}
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


def _term_of(pool: Pool) -> dict[str, Any]:
    """Return the labels of the pool as a node selector term, for manifests."""
    return {
        "matchExpressions": [
            {"key": each.key, "operator": each.operator}
            | ({"values": each.values} if each.values else {})
            for each in pool.requirements
        ]
    }

"""The checks of the cluster: its version, its nodes, exempt namespaces, and what replicas read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from policies.context import Fact, needed_facts
from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy
from webhook.audit.pools import label_problems, node_findings, pool_states
from webhook.doctor.installation import Installation
from webhook.doctor.line import DoctorLine, fail, ok, skip, warn
from webhook.kube.client import KubeApi
from webhook.kube.errors import FORBIDDEN, NOT_FOUND, ApiError

_OLDEST = (1, 30)
_CLAIMS = "v1"
_FACTS = "cluster facts"
_GROUPS: dict[Fact, str] = {
    "nodes": "",
    "namespaces": "",
    "runtimeclasses": "node.k8s.io",
    "deviceclasses": "resource.k8s.io",
}
_EXEMPT = "exempt namespaces"
_WORKLOADS = ("daemonsets", "deployments", "statefulsets")
_EXEMPT_REMEDIATION = (
    "Delete each namespace that the cluster does not need, or remove it from exemptions.namespaces "
    "of the policy"
)


def check_version(installed: Installation) -> DoctorLine:
    """Return whether the API server is new enough, and serves the claims that gpufence reads."""
    check, oldest = "Kubernetes", ".".join(map(str, _OLDEST))
    parts = re.match(r"v(\d+)\.(\d+)\.", installed.version)
    if parts is None:
        problem = installed.forbidden.get("version") or f"it says {installed.version!r}"
        return skip(check, f"the version of the API server is unknown: {problem}")
    if (int(parts[1]), int(parts[2])) < _OLDEST:
        problem = f"{installed.version} is older than {oldest}"
        return fail(check, problem, f"Upgrade to Kubernetes {oldest} or newer")
    if "API groups" in installed.forbidden or _CLAIMS in installed.claim_versions:
        return ok(check, installed.version)
    if not installed.claim_versions:
        return ok(check, f"{installed.version}, without dynamic resource allocation")
    served = ", ".join(installed.claim_versions)
    return warn(
        check,
        f"{installed.version} serves resource.k8s.io only as {served}: a Pod that requests devices "
        "through a resource claim does not count as a GPU Pod",
        "Upgrade to Kubernetes 1.34 or newer, or request devices as extended resources",
    )


def check_policy(installed: Installation) -> Iterator[DoctorLine]:
    """Yield a line for the policy, and one for the nodes or for each problem of a node."""
    if "policy" in installed.forbidden:
        problem = f"cannot read it: {installed.forbidden['policy']}"
        yield skip("policy", problem, "Set --policy FILE")
    elif installed.policy is None:
        yield fail(
            "policy",
            installed.policy_problem,
            "Fix the policy. Until then, replicas keep using the last valid policy",
        )
    else:
        pools = ", ".join(pool.name for pool in installed.policy.pools)
        yield ok("policy", f"{installed.policy_source} is valid; its pools: {pools}")
        if installed.policy.unenforced:
            remediation = (
                "Set mode: enforce in the policy once metrics and audit log are as expected"
            )
            yield warn("mode", installed.policy.unenforced, remediation)
        yield from _nodes(installed, installed.policy)
        nodes = installed.nodes or NodeIndex()
        yield from _advisories(installed)
        for lacking in label_problems(installed.policy, nodes, installed.templates):
            yield warn("node labels", lacking.problem, lacking.remediation)


def _nodes(installed: Installation, policy: Policy) -> Iterator[DoctorLine]:
    if "nodes" in installed.forbidden:
        yield skip("nodes", f"cannot list them: {installed.forbidden['nodes']}")
        return
    states = pool_states(policy, installed.nodes)
    broken = node_findings(states)
    for node in broken:
        for finding in node.findings:
            problem = f"node {node.name}: {finding.reason}; {finding.detail}"
            yield fail("nodes", problem, finding.remediation)
    count = sum(len(state.nodes) for state in states)
    if not broken and count:
        yield ok("nodes", f"{count} GPU nodes, each with the taint and the labels of its pool")
    elif not broken:
        yield skip("nodes", "no node offers devices of a pool or has its labels")


def _advisories(installed: Installation) -> Iterator[DoctorLine]:
    if installed.nodes is None:
        return
    for affected in installed.versions.affected():
        yield warn("advisories", affected.problem, affected.remediation)


async def check_facts(api: KubeApi, installed: Installation) -> AsyncIterator[DoctorLine]:
    """Yield a line for all cluster facts, or one for each that the replicas cannot know."""
    if installed.policy is None or installed.deployed is None or installed.deployment is None:
        yield skip(_FACTS, "the policy or the command line of the replicas is unknown")
        return
    needed = needed_facts(installed.policy)
    if not installed.deployed.registration.with_nodes and needed:
        cure = "Set clusterFacts: true in the chart, or run serve with --node-facts"
        yield fail(_FACTS, f"they are off: {'; '.join(needed.values())}", cure)
        return
    account = installed.deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
    user = f"system:serviceaccount:{installed.namespace}:{account}"
    lacking = []
    for fact, consequence in needed.items():
        try:
            allowed = [await _may(api, user, fact, verb) for verb in ("list", "watch")]
        except ApiError as error:
            if error.status not in (FORBIDDEN, NOT_FOUND):
                raise
            yield skip(_FACTS, f"the rights of {user} cannot be reviewed: {error}")
            return
        if not all(allowed):
            lacking.append(f"{user} may not list and watch {fact}: {consequence}")
    cure = "Add the rule to the ClusterRole of gpufence's service account, as in the chart"
    for problem in lacking:
        yield fail(_FACTS, problem, cure)
    if not lacking:
        yield ok(_FACTS, f"{user} may read {', '.join(needed)}" if needed else "none are needed")


async def _may(api: KubeApi, user: str, fact: Fact, verb: str) -> bool:
    accounts, namespace = "system:serviceaccounts", user.split(":")[2]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": [accounts, f"{accounts}:{namespace}", "system:authenticated"],
            "resourceAttributes": {"group": _GROUPS[fact], "resource": fact, "verb": verb},
        },
    }
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool((answer.get("status") or {}).get("allowed"))


async def check_exempt_namespaces(api: KubeApi, installed: Installation) -> DoctorLine:
    """Return whether each exempt namespace that exists has a workload of an operator or an agent.

    gpufence checks no Pod in such a namespace. ``kube-system`` and the namespaces of gpufence are
    always needed.
    """
    if installed.policy is None:
        return skip(_EXEMPT, "the policy is unknown, and it names the namespaces")
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
        return skip(_EXEMPT, f"cannot read them: {error}")
    if unused:
        names = ", ".join(unused)
        return warn(
            _EXEMPT,
            f"no DaemonSet, Deployment or StatefulSet runs in {names}: gpufence checks no Pod "
            "there, only because of the name",
            _EXEMPT_REMEDIATION,
        )
    return ok(_EXEMPT, f"each has a workload: {', '.join(used)}" if used else "no other exists")


async def _has_workload(api: KubeApi, namespace: str) -> bool:
    for kind in _WORKLOADS:
        listed = await api.read(f"/apis/apps/v1/namespaces/{namespace}/{kind}", {"limit": "1"})
        if listed and listed.get("items"):
            return True
    return False

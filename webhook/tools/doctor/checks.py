"""The checks that only read, in their order, and those of the cluster and of the policy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from policies.kubernetes.objects import mapping, mappings
from policies.policy import ExceptionEntry
from policies.reach import CONTROLLER_MANAGER
from policies.wording import listing
from webhook.registered import KINDS
from webhook.tools.audit.pools import IN_TWO_POOLS, label_problems, node_findings, pool_states
from webhook.tools.audit.stack import StackProblem
from webhook.tools.doctor import (
    DoctorLine,
    fail,
    ok,
    others,
    processes,
    registered,
    skip,
    unknown,
    warn,
)
from webhook.tools.doctor.installation import RESTORE, Installation
from webhook.tools.exceptions import useless_exceptions
from webhook.tools.platforms import Found

_OLDEST = (1, 30)
_CLAIMS = "v1"
_READ = "Use an account that may read it, such as a cluster administrator"
_FOLLOWING = "Until then, replicas keep using the last valid policy"


def diagnosis(installed: Installation) -> Iterator[DoctorLine]:
    """Yield the lines of each check, causes before their consequences.

    Without the permission to read its object, the result of a check is unknown.
    """
    for name, check in _CHECKS.items():
        error = installed.forbidden.get(name)
        lines = check(installed) if error is None else [unknown(f"cannot read it: {error}", _READ)]
        for line in lines:
            yield line._replace(check=name)


def _version(installed: Installation) -> Iterator[DoctorLine]:
    """Check that the API server is new enough, and serves the claims that gpufence reads."""
    version, oldest = installed.version, ".".join(map(str, _OLDEST))
    parts = re.match(r"v(\d+)\.(\d+)\.", version)
    if parts is None:
        yield skip(f"the version of the API server is unknown: it says {version!r}")
    elif (int(parts[1]), int(parts[2])) < _OLDEST:
        yield fail(f"{version} is older than {oldest}", f"Upgrade to Kubernetes {oldest} or newer")
    elif "API groups" in installed.forbidden or _CLAIMS in installed.claim_versions:
        yield ok(version)
    elif not installed.claim_versions:
        yield ok(f"{version}, without dynamic resource allocation")
    else:
        yield warn(
            f"{version} serves resource.k8s.io only as {', '.join(installed.claim_versions)}: a "
            "Pod that requests devices through a resource claim does not count as a GPU Pod",
            "Upgrade to Kubernetes 1.34 or newer, or request devices as extended resources",
        )


def _controller_manager(installed: Installation) -> Iterator[DoctorLine]:
    """Check that gpufence recognizes the Pods of DaemonSets by the account of their controller."""
    if installed.has_shared_account:
        flag = "--use-service-account-credentials"
        yield warn(
            f"kube-controller-manager runs without {flag}: gpufence denies the Pods of DaemonSets "
            f"on GPU nodes, unless its user is {CONTROLLER_MANAGER}",
            f"Run kube-controller-manager with {flag}, or as this user",
        )


def _policy(installed: Installation) -> Iterator[DoctorLine]:
    if "FencePolicy" in installed.forbidden:
        problem = f"cannot read it: {installed.forbidden['FencePolicy']}"
        yield unknown(problem, f"{_READ}, or set --policy FILE")
    elif installed.policy is None and not installed.policy_source:
        if installed.follows is None:
            problem = f"the FencePolicy that replicas follow is unknown. {installed.policy_problem}"
            yield unknown(problem, "Set --name to the release, or --policy FILE")
        else:
            yield unknown("replicas read it from a file", "Set --policy FILE")
    elif installed.policy is None:
        yield fail(installed.policy_problem, _policy_cure(installed))
    else:
        pools = ", ".join(pool.name for pool in installed.policy.pools)
        yield ok(f"{installed.policy_source} is valid; its pools: {pools}")
    if installed.deployed is not None and installed.uses_facts is not None:
        # Both command lines are known.
        registered = installed.deployed.registration.fence_policy
        if registered != installed.follows:
            own, other = (each or "a file" for each in (installed.follows, registered))
            problem = f"replicas follow {own}, and the controller {other}"
            yield fail(problem, f"{RESTORE}, or set the same --fence-policy on both command lines")


def _mode(installed: Installation) -> Iterator[DoctorLine]:
    if installed.policy is not None and installed.policy.unenforced:
        cure = "Set mode: enforce in the policy once metrics and audit log are as expected"
        if installed.fence_policy is not None and installed.policy.mode != "enforce":
            name, patch = installed.fence_policy["metadata"]["name"], '{"spec":{"mode":"enforce"}}'
            kubectl = f"kubectl patch fencepolicy {name} --type merge -p '{patch}'"
            cure = f"Once metrics and audit log are as expected, run {kubectl}"
        yield warn(installed.policy.unenforced, cure)


def _policy_cure(installed: Installation) -> str:
    if installed.fence_policy is not None:
        edit = f"Run kubectl edit fencepolicy {installed.fence_policy['metadata']['name']}"
        return f"{edit}, and correct it. {_FOLLOWING}"
    crd = "Apply the directory crds of the chart (kubectl apply -f). "
    return f"{'' if installed.fence_policies else crd}{RESTORE}. {_FOLLOWING}"


def _policy_status(installed: Installation) -> Iterator[DoctorLine]:
    """Report what the controller says of the policy in its status."""
    policy = installed.fence_policy
    if policy is None or installed.controller is None:
        return
    name, generation = policy["metadata"]["name"], policy["metadata"].get("generation")
    logs = f"kubectl --namespace {installed.namespace} logs deployment/{installed.name}-controller"
    status = mapping(policy.get("status"))
    if status.get("observedGeneration") != generation:
        seen = status.get("observedGeneration") or "none"
        problem = f"the controller has not acted on generation {generation}; it knows {seen}"
        yield fail(problem, f"See the lines about the controller, and its log: {logs}")
        return
    # The check of the nodes has more of NodesFit than the condition.
    failed = [
        condition
        for _, condition in mappings(status.get("conditions"))
        if condition.get("status") == "False" and condition.get("type") != "NodesFit"
    ]
    for each in failed:
        problem = f"{each.get('type')} is False: {each.get('message')}"
        yield fail(problem, f"Follow the message. The log of the controller has more: {logs}")
    if not failed:
        yield ok(f"the controller has acted on generation {generation} of FencePolicy {name}")


def _other_policies(installed: Installation) -> Iterator[DoctorLine]:
    followed = (installed.fence_policy or {}).get("metadata", {}).get("name")
    for name in installed.fence_policies if followed else ():
        if name != followed:
            yield warn(
                f"FencePolicy {name} has no effect: replicas follow {followed}",
                f"Run kubectl delete fencepolicy {name}",
            )


def _exceptions(installed: Installation) -> Iterator[DoctorLine]:
    """Report exceptions that cover nothing, and those that cover every Pod."""
    if installed.policy is None:
        return
    useless = dict(useless_exceptions(installed.policy, installed.now.date()))
    # The last first: each command leaves the indexes of the others as they are.
    for index, entry in reversed([*enumerate(installed.policy.exceptions)]):
        which, cure = f"exception {index + 1} ({entry.reason})", _removal(installed, index, entry)
        is_limited = entry.names or entry.controls or (entry.kinds and "Pod" not in entry.kinds)
        if index in useless:
            yield warn(f"{which} {useless[index]}", cure)
        elif "" in entry.namespaces.prefixes and not is_limited:
            rules = f"for {listing(sorted(entry.rules))}" if entry.rules else "for every rule"
            line = warn if entry.rules else fail
            yield line(f"{which} covers every Pod in every namespace, {rules}", cure)


def _removal(installed: Installation, index: int, entry: ExceptionEntry) -> str:
    if installed.fence_policy is None:
        return "Remove it from exceptions of the policy"
    path = f"/spec/exceptions/{index}"
    # Another client may have changed the list when the command runs.
    test = {"op": "test", "path": f"{path}/reason", "value": entry.reason}
    patch = shlex.quote(json.dumps([test, {"op": "remove", "path": path}]))
    name = installed.fence_policy["metadata"]["name"]
    return f"Run kubectl patch fencepolicy {name} --type json -p {patch}"


def _nodes(installed: Installation) -> Iterator[DoctorLine]:
    if installed.policy is None:
        return
    for title, problem in installed.unreadable:
        yield fail(f"{title} cannot be read: {problem}", "Correct the object, or what writes it")
    states = pool_states(installed.policy, installed.nodes)
    broken = node_findings(states)
    for node in broken:
        for finding in node.findings:
            problem = f"node {node.name}: {finding.reason}; {finding.detail}"
            line = warn if finding.rule == IN_TWO_POOLS else fail
            yield line(problem, finding.remediation)
    count = len({name for state in states for name in state.nodes})
    if not broken and count:
        yield ok(f"{count} GPU nodes, each with the taint and the labels of its pool")
    elif not broken:
        yield skip("no node offers devices of a pool or has its labels")


def _node_labels(installed: Installation) -> Iterator[DoctorLine]:
    if installed.policy is not None and installed.nodes is not None:
        found = label_problems(installed.policy, installed.nodes, installed.templates)
        yield from _warnings(found)


def _warnings(found: Iterable[StackProblem | Found]) -> Iterator[DoctorLine]:
    return (warn(each.problem, each.remediation) for each in found)


def _exempt_namespaces(installed: Installation) -> Iterator[DoctorLine]:
    """Check that each exempt namespace that exists has a workload of an operator or an agent.

    gpufence checks no Pod in such a namespace.
    """
    if installed.policy is None:
        yield skip("the policy is unknown, and it names the namespaces")
        return
    unused = [name for name, is_used in installed.exempt_namespaces.items() if not is_used]
    if unused:
        yield warn(
            f"no DaemonSet, Deployment or StatefulSet runs in {', '.join(unused)}: gpufence checks "
            "no Pod there, only because of the name",
            "Delete each namespace that the cluster does not need, or remove it from "
            "exemptions.namespaces of the policy",
        )
    elif installed.exempt_namespaces:
        yield ok(f"each has a workload: {', '.join(installed.exempt_namespaces)}")
    else:
        yield ok("no other exists")


_CHECKS: dict[str, Callable[[Installation], Iterable[DoctorLine]]] = {
    "Kubernetes": _version,
    "controller manager": _controller_manager,
    "other webhooks": others.webhooks,
    "other releases": others.releases,
    "policy": _policy,
    "other policies": _other_policies,
    "mode": _mode,
    "exceptions": _exceptions,
    "nodes": _nodes,
    "node labels": _node_labels,
    # Taints that keep a DaemonSet off GPU nodes, and drivers that publish for other nodes.
    "GPU stack": lambda installed: _warnings(installed.stack),
    "rights": processes.may,
    "replicas": processes.replicas,
    "command line": processes.command_line,
    "controller": processes.controller,
    "Service": processes.service,
    "endpoints": processes.endpoints,
    "cluster facts": processes.facts,
    "certificate": processes.certificate,
    "CA": processes.authority,
    "caBundle": processes.ca_bundle,
    **{kind: partial(registered.configuration, kind) for kind in KINDS},
    "admission policies": registered.policies,
    "admission policy types": registered.types,
    "guards": registered.guards,
    "namespace guard": registered.namespace_guard,
    "policy status": _policy_status,
    "exempt namespaces": _exempt_namespaces,
    # Pods that platforms bind to GPU nodes, where gpufence denies them.
    "platforms": lambda installed: _warnings(installed.platforms),
}

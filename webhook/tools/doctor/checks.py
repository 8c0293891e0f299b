"""The checks that only read: the cluster, the policy, the replicas and their certificate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from certs.keypair import (
    is_certificate,
    is_overdue,
    leaf_problem,
    renewal_due,
)
from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.policy import Policy
from policies.reach import CONTROLLER_MANAGER
from webhook.cluster.needs import needed_facts
from webhook.controller.registrar import KINDS
from webhook.controller.trust import bundles
from webhook.kube.endpoints import ready_endpoints
from webhook.tools.audit.pools import label_problems, node_findings, pool_states
from webhook.tools.doctor import DoctorLine, fail, ok, registered, skip, warn
from webhook.tools.doctor.installation import Installation, containers_of

_OLDEST = (1, 30)
_CLAIMS = "v1"
_LOGS = "Run kubectl logs and kubectl describe, and check that the nodes can pull the image"
_PLACEHOLDER = "gpufence"
"""The image's name in a checkout. The chart of a release names the published image."""
_RENEWAL = "Check that the controller runs, and its log for the reason"


def diagnosis(installed: Installation) -> Iterator[DoctorLine]:
    """Yield the lines of each check, causes before their consequences.

    A check without the permission to read its object is skipped.
    """
    for name, check in _CHECKS.items():
        error = installed.forbidden.get(name)
        lines = check(installed) if error is None else [skip(f"cannot read it: {error}")]
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
        yield skip(f"cannot read it: {installed.forbidden['FencePolicy']}", "Set --policy FILE")
    elif installed.policy is None and not installed.policy_source:
        if installed.follows is None:
            problem = f"the FencePolicy that replicas follow is unknown. {installed.policy_problem}"
            yield skip(problem, "Set --name to the release, or --policy FILE")
        else:
            yield skip("replicas read it from a file", "Set --policy FILE")
    elif installed.policy is None:
        cure = "Fix the policy. Until then, replicas keep using the last valid policy"
        yield fail(installed.policy_problem, cure)
    else:
        pools = ", ".join(pool.name for pool in installed.policy.pools)
        yield ok(f"{installed.policy_source} is valid; its pools: {pools}")
    if installed.deployed is not None and installed.uses_facts is not None:
        # Both command lines are known.
        registered = installed.deployed.registration.fence_policy
        if registered != installed.follows:
            own, other = (each or "a file" for each in (installed.follows, registered))
            problem = f"replicas follow {own}, and the controller {other}"
            yield fail(problem, "Set the same --fence-policy, or --policy, on both command lines")


def _mode(installed: Installation) -> Iterator[DoctorLine]:
    if installed.policy is not None and installed.policy.unenforced:
        cure = "Set mode: enforce in the policy once metrics and audit log are as expected"
        yield warn(installed.policy.unenforced, cure)


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
            yield fail(problem, finding.remediation)
    count = len({name for state in states for name in state.nodes})
    if not broken and count:
        yield ok(f"{count} GPU nodes, each with the taint and the labels of its pool")
    elif not broken:
        yield skip("no node offers devices of a pool or has its labels")


def _node_labels(installed: Installation) -> Iterator[DoctorLine]:
    if installed.policy is not None and installed.nodes is not None:
        for lacking in label_problems(installed.policy, installed.nodes, installed.templates):
            yield warn(lacking.problem, lacking.remediation)


def _stack(installed: Installation) -> Iterator[DoctorLine]:
    """Check that taints keep no DaemonSet off GPU nodes, and that drivers publish for these."""
    for problem in installed.stack:
        yield warn(*problem)


def _replicas(installed: Installation) -> Iterator[DoctorLine]:
    where = f"Deployment {installed.namespace}/{installed.name}"
    if installed.deployment is None:
        yield warn(
            f"{where} does not exist",
            "Set --namespace and --name to the release, unless the replicas run outside of the "
            "cluster",
        )
        return
    desired = installed.deployment["spec"].get("replicas", 1)
    ready = (installed.deployment.get("status") or {}).get("readyReplicas") or 0
    if not ready:
        scale = f"Run kubectl scale deployment {installed.name} --replicas 2"
        cure = _image_hint(installed.deployment) or _LOGS
        yield fail(f"{where}: 0 of {desired} are ready", cure if desired else scale)
    elif ready < desired:
        yield warn(f"{where}: {ready} of {desired} are ready", _LOGS)
    elif desired == 1:
        yield warn(f"{where} has one replica", "Run two or more, to survive the loss of a node")
    else:
        yield ok(f"all {desired} are ready")


def _image_hint(deployment: JSONObject) -> str:
    """Return what to do about an image without a registry: no node can pull it."""
    for container in containers_of(deployment):
        image = str(container.get("image") or "")
        if image.partition(":")[0] == _PLACEHOLDER:
            return (
                f"The image {image} is the placeholder of a chart from a checkout. Build "
                "deploy/Dockerfile, push the image, and set image.repository to its name"
            )
    return ""


def _command_line(installed: Installation) -> Iterator[DoctorLine]:
    """Report a Deployment whose Pods have no container of gpufence."""
    if installed.deployment is not None and installed.uses_facts is None:
        names = ", ".join(container["name"] for container in containers_of(installed.deployment))
        yield warn(
            f"Deployment {installed.namespace}/{installed.name} has no container named gpufence "
            f"or with the command gpufence serve; its containers: {names}",
            "Name the container gpufence, or set --namespace and --name to another release",
        )


def _endpoints(installed: Installation) -> Iterator[DoctorLine]:
    address = installed.address
    if address is None:
        yield skip("the address of gpufence is unknown")
    elif address.service is None:
        yield skip(f"API servers use {address.url}, without a Service")
    else:
        namespace, name, _ = address.service
        ready = sum(len(ready_endpoints(slice_)) for slice_ in installed.slices)
        if ready:
            endpoints = "endpoint" if ready == 1 else "endpoints"
            yield ok(f"Service {namespace}/{name} has {ready} ready {endpoints}")
        else:
            yield fail(
                f"Service {namespace}/{name} has no ready endpoint, so API servers cannot call "
                "gpufence",
                "Check that replicas are ready, and that the Service selects them",
            )


def _controller(installed: Installation) -> Iterator[DoctorLine]:
    where = f"Deployment {installed.namespace}/{installed.name}-controller"
    if installed.controller is None:
        yield skip(f"{where} does not exist: others keep certificates and configurations")
    elif (installed.controller.get("status") or {}).get("readyReplicas"):
        yield ok("it is ready")
    else:
        problem = "nothing renews certificates or repairs configurations"
        yield warn(f"{where} is not ready: {problem}", _image_hint(installed.controller) or _LOGS)


def _facts(installed: Installation) -> Iterator[DoctorLine]:
    """Check whether replicas may read what the policy needs to know about the cluster."""
    if installed.policy is None or installed.uses_facts is None:
        yield skip("the policy or the command line of the replicas is unknown")
        return
    needed = needed_facts(installed.policy)
    if not installed.uses_facts and needed:
        cure = "Set clusterFacts: true in the chart, or run serve with --node-facts"
        yield fail(f"they are off: {'; '.join(needed.values())}", cure)
        return
    for fact in installed.denied_facts:
        problem = f"{installed.account} may not list and watch {fact}: {needed[fact]}"
        cure = "Add the rule to the ClusterRole of gpufence's service account, as in the chart"
        yield fail(problem, cure)
    if not installed.denied_facts:
        readable = f"{installed.account} may read {', '.join(needed)}"
        yield ok(readable if needed else "none are needed")


def _certificate(installed: Installation) -> Iterator[DoctorLine]:
    if installed.deployed is None:
        yield skip("the Secret that replicas mount is unknown; see the trials below")
    elif installed.secret is None:
        yield fail(
            f"Secret {installed.namespace}/{installed.deployed.serving_secret} does not exist",
            "Restore the release (helm upgrade): the controller fills the Secret of the chart",
        )
    elif installed.leaf is None:
        yield fail("the Secret has no serving certificate", _RENEWAL)
    else:
        authorities = [installed.signer] if is_certificate(installed.signer) else []
        problem = leaf_problem(installed.leaf, authorities, installed.names, installed.now)
        if problem:
            yield fail(f"the {problem}", _RENEWAL)
            return
        leaf = installed.leaf.certificate
        due, end = renewal_due(leaf).isoformat(), leaf.not_valid_after_utc.isoformat()
        if is_overdue(leaf, installed.now):
            problem = f"the renewal was due at {due}; the certificate expires at {end}"
            yield warn(problem, _RENEWAL)
        else:
            yield ok(f"valid until {end}; renewal is due at {due}")


def _ca_bundle(installed: Installation) -> Iterator[DoctorLine]:
    """Check that every webhook trusts the certificate in the Secret."""
    if installed.leaf is None:
        return
    existing = {kind: each for kind, each in installed.configurations.items() if each}
    wrong = [
        f"{kind}, webhook {name}"
        for kind, each in existing.items()
        for name, bundle in bundles(each).items()
        if not installed.leaf.is_trusted_by(bundle)
    ]
    if not existing:
        yield skip("there is no webhook configuration")
    elif wrong:
        yield fail(
            f"does not contain the CA of the Secret in {'; '.join(wrong)}",
            "Wait some seconds: the controller writes it. Then check its log",
        )
    else:
        yield ok("every webhook trusts the serving certificate")


def _other_releases(installed: Installation) -> Iterator[DoctorLine]:
    for name in installed.other_releases:
        yield fail(
            f"webhook configuration {name} is of another release of gpufence, and both change and "
            "deny the same Pods",
            "Uninstall one of them (helm uninstall), and upgrade the other (helm upgrade)",
        )


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


def _namespace_guard(installed: Installation) -> Iterator[DoctorLine]:
    """Check that the guard of the chart has the namespaces for which the policy is relaxed."""
    relaxed = relaxed_namespaces(installed.policy) if installed.policy is not None else set()
    spec = mapping(mapping(installed.namespace_guard).get("spec"))
    text = " ".join(str(each.get("expression")) for _, each in mappings(spec.get("variables")))
    if unguarded := sorted(name for name in relaxed if f'"{name}"' not in text):
        yield warn(
            f"the policy is relaxed in namespaces {', '.join(unguarded)}, and every user who may "
            "create namespaces may create these",
            "Set policy.overrides and policy.exceptions in the values of the chart as in the "
            "policy, or restrict who may create namespaces",
        )
    elif relaxed:
        yield ok(f"it limits who may create {', '.join(sorted(relaxed))}")


def relaxed_namespaces(policy: Policy) -> set[str]:
    """Return the names and prefixes for which overrides and exceptions relax a policy.

    Without ``*``: who may create any namespace gains nothing by what holds in all of them.
    """
    if policy.mode != "enforce":
        return set()
    names = {name for each in policy.exceptions for name in each.namespaces.patterns}
    for override in policy.overrides:
        level = (override.hardening and override.hardening.level) or "restricted"
        weaker = [rule for rule, action in override.rules.items() if action != "enforce"]
        if (
            override.mode in ("warn", "audit")
            or level != "restricted"
            or any(policy.rules[rule] == "enforce" for rule in weaker)
        ):
            names.update(override.namespaces)
    return names - {"*"}


def _platforms(installed: Installation) -> Iterator[DoctorLine]:
    """Check that gpufence does not deny the Pods that platforms bind to GPU nodes."""
    for platform in installed.platforms:
        yield warn(platform.problem, platform.remediation)


_CHECKS: dict[str, Callable[[Installation], Iterable[DoctorLine]]] = {
    "Kubernetes": _version,
    "controller manager": _controller_manager,
    "policy": _policy,
    "mode": _mode,
    "nodes": _nodes,
    "node labels": _node_labels,
    "GPU stack": _stack,
    "replicas": _replicas,
    "command line": _command_line,
    "endpoints": _endpoints,
    "controller": _controller,
    "cluster facts": _facts,
    "certificate": _certificate,
    "caBundle": _ca_bundle,
    **{kind: partial(registered.configuration, kind) for kind in KINDS},
    "other releases": _other_releases,
    "admission policies": registered.policies,
    "admission policy types": registered.types,
    "exempt namespaces": _exempt_namespaces,
    "namespace guard": _namespace_guard,
    "platforms": _platforms,
}

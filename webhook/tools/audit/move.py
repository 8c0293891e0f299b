"""What stops working when a DRA driver takes the place of the device plugin.

The driver publishes devices, but no labels of GPU feature discovery, and Pods can request only what
DeviceClasses offer. Sources: ``k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go``,
and the chart of NVIDIA/k8s-dra-driver-gpu.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from policies.device_injection import VISIBLE_DEVICES
from policies.facts import Facts, Request
from policies.kubernetes.claims import class_of_resource, implicit_resource
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import descend
from policies.kubernetes.pod import Pod
from policies.policy import Policy, Pool
from policies.reach import may_join
from policies.requests import Scope, device_requests
from policies.wording import listing
from webhook.cluster.gangs import OF_CLASS
from webhook.wording import counted, some

# The GPU Operator sets nvidia.com/gpu.deploy.* for its own DaemonSets.
_MIG = "nvidia.com/mig-"
_PROFILE = re.compile(r"(\d+c\.)?\d+g\.\d+gb([.+-][a-z0-9.]+)?")
"""The names of MIG profiles, as NVIDIA's device plugin has them in resources."""
_FEATURE_DISCOVERY = re.compile(r"nvidia\.com/(?!gpu\.deploy\.)(gpu|cuda|mig|mps|vgpu)[.-]")
_USUAL: Mapping[str, Sequence[str]] = {
    "nvidia.com/gpu": ("gpu.nvidia.com",),
    "": ("mig.nvidia.com", "vfio.gpu.nvidia.com"),
}
"""The DeviceClasses of the driver's chart, for a cluster that does not have them yet."""
_UNUSED = ("", "none", "void")


class Move:
    """Collects what workloads depend on, and says what a move to DRA breaks."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_label: defaultdict[str, list[str]] = defaultdict(list)
        self._by_resource: defaultdict[str, list[str]] = defaultdict(list)
        self._with_variable: list[str] = []
        self._with_claims: defaultdict[Pool, list[str]] = defaultdict(list)

    def take(self, title: str, pod: Pod, namespace: str, facts: Facts) -> None:
        """Record what the Pods of a workload depend on."""
        alternatives = pod.selection()
        keys = {key for each in alternatives for key in (*each.labels, *each.by_key)}
        for key in filter(_FEATURE_DISCOVERY.match, keys):
            self._by_label[key].append(title)
        for name in pod.device_peaks():
            if self._policy.pools_of_resource(name):
                self._by_resource[name].append(title)
        requests = device_requests(pod, Scope(self._policy, Request(namespace=namespace), facts))
        variables = [each for c in pod.containers for each in c.spec.env or ()]
        if requests and any(
            each.name == VISIBLE_DEVICES and (each.value_from or (each.value or "") not in _UNUSED)
            for each in variables
        ):
            self._with_variable.append(title)
        if requests and all(each.claim for each in requests):
            for pool in {pool for each in requests for pool in each.pools}:
                self._with_claims[pool].append(title)

    def problems(
        self,
        classes: Mapping[str, Sequence[str]],
        quotas: Iterable[JSONObject],
        templates: Sequence[NodeTemplate],
    ) -> Iterator[str]:
        """Yield a sentence for each problem.

        ``classes`` are the DeviceClasses by the extended resource that they provide, and by an
        empty name those that provide none.
        """
        every = {name for names in classes.values() for name in names}
        known = classes if every & self._policy.pools_of_class.keys() else {**classes, **_USUAL}
        yield from self._labels()
        yield from self._resources(known)
        for resource, names in sorted(classes.items()):
            if resource and len(names) > 1:
                yield (
                    f"DeviceClasses {listing(sorted(names))} provide {resource}: the scheduler "
                    "uses the newest. Remove extendedResourceName from the others"
                )
        if self._with_variable:
            yield (
                f"{VISIBLE_DEVICES} has a value in {_workloads(self._with_variable)}. The driver "
                "gives a container its devices without it. Remove the variable, or set it to void"
            )
        yield from self._quotas(known, quotas)
        for pool, titles in self._with_claims.items():
            if adding := [each.name for each in templates if may_join(each, pool)]:
                yield (
                    f"Only claims request devices of pool {pool.name} in {_workloads(titles)}, and "
                    f"{some(adding)} may not know the devices of a node that does not exist. Keep "
                    "one node of the pool, or request the extended resource of its DeviceClass"
                )

    def _labels(self) -> Iterator[str]:
        for pool in self._policy.pools:
            if keys := sorted(filter(_FEATURE_DISCOVERY.match, pool.selector)):
                yield (
                    f"Pool {pool.name} of the policy selects {listing(keys)}, which feature "
                    "discovery sets. Keep feature discovery, set the label in the node group, or "
                    "remove the selection: the pool is then known by its devices"
                )
        for key, titles in sorted(self._by_label.items()):
            yield (
                f"Feature discovery sets the node label {key}, which places {_workloads(titles)}. "
                "Keep feature discovery, or select devices by their attributes in a claim"
            )

    def _resources(self, classes: Mapping[str, Sequence[str]]) -> Iterator[str]:
        every = {name for names in classes.values() for name in names}
        for resource, titles in sorted(self._by_resource.items()):
            if resource.startswith(_MIG) and not _PROFILE.fullmatch(resource, len(_MIG)):
                yield (
                    f"{resource} is not the name of a MIG profile, such as {_MIG}3g.40gb. Correct "
                    f"the name in {_workloads(titles)}"
                )
            elif resource not in classes and class_of_resource(resource) not in every:
                yield (
                    f"No DeviceClass provides {resource} for {_workloads(titles)}. Create a "
                    f"DeviceClass with extendedResourceName: {resource}"
                )

    def _quotas(
        self, classes: Mapping[str, Sequence[str]], quotas: Iterable[JSONObject]
    ) -> Iterator[str]:
        """Yield a sentence for each quota that limits devices by some of their names.

        A quota of a resource counts claims on the class that provides it. A quota of a class counts
        each claim, also those of extended resources, and no device of a device plugin.
        """
        provided = {name: resource for resource, names in classes.items() for name in names}
        for quota in quotas:
            metadata, limits = quota["metadata"], descend(quota, ("spec", "hard")) or {}
            title = f"ResourceQuota {metadata.get('namespace')}/{metadata.get('name')}"
            for key in sorted(limits):
                resource = key.removeprefix("requests.")
                pools = self._policy.pools_of_resource(resource) if resource != key else ()
                missing = {
                    name
                    for pool in pools
                    for name in pool.device_classes or _classes_of_chart(pool)
                    if provided.get(name, resource) != resource
                    and f"{name}{OF_CLASS}" not in limits
                    and f"requests.{implicit_resource(name)}" not in limits
                }
                if missing:
                    names = sorted(missing)
                    yield (
                        f"{title} limits {key}, but no claims on {listing(names)}. Add "
                        f"{listing(f'{name}{OF_CLASS}' for name in names)} to spec.hard"
                    )
                resource = provided.get(key.removesuffix(OF_CLASS), "")
                if resource and f"requests.{resource}" not in limits:
                    yield (
                        f"{title} limits {key}: a Pod with {resource} that exceeds it stays "
                        "Pending, and one on a node with a device plugin does not count. Add "
                        f"requests.{resource} to spec.hard"
                    )


def _classes_of_chart(pool: Pool) -> Iterable[str]:
    """Return the classes that a pool without any will have, if the driver is NVIDIA's."""
    offered = any(pool.offers(resource) for resource in _USUAL)
    return [name for names in _USUAL.values() for name in names] if offered else ()


def _workloads(titles: Sequence[str]) -> str:
    return f"{counted(len(titles), 'workload')} ({some(titles)})"

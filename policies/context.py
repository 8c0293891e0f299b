"""What a rule may know beyond the Pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from policies.candidates import describe, with_candidates
from policies.facts import Facts, Request
from policies.kubernetes.core_v1 import OwnerReference, PodSpec, PodTemplate
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.pod import ContainerKind, DeviceResource, Pod
from policies.kubernetes.workload import convert
from policies.policy import EffectiveHardening, Policy, Pool
from policies.requests import DeviceRequest, NamedClaim, Scope, device_requests

# Each finding names the claims, and a Pod can have thousands of findings.
_NAMED_CLAIMS = 8


class Context(Scope, frozen=True, gc=False):
    """The policy, the request and the cluster facts, and what the Pod requests of the pools.

    A GPU Pod has at least one device request.
    """

    device_requests: tuple[DeviceRequest, ...] = ()
    distinct_requests: tuple[DeviceRequest, ...] = ()
    """The first request for each set of candidate pools."""
    requested_pools: dict[Pool, None] = msgspec.field(default_factory=dict)
    """The candidate pools of the Pod, in the order of its requests."""
    requesting: frozenset[tuple[ContainerKind, int]] = frozenset()
    """Kind and position of the containers whose devices come with a variable.

    These are the containers that request a device in their resources, or that an annotation names.
    The driver of a claim adds devices without a variable (NVIDIA/k8s-dra-driver-gpu,
    ``cmd/gpu-kubelet-plugin/cdi.go``, sets NVIDIA_VISIBLE_DEVICES to void), and adds none where the
    claim has no device for the container.
    """
    written_devices: tuple[DeviceResource, ...] | None = None
    """For the template of a core workload, its devices without mutations: the API server validates
    the template in that form."""
    excepted: frozenset[str] = frozenset()
    """The mutations that an exception keeps off the object."""
    siblings: tuple[Pod, ...] = ()
    """The Pods of the object, if it has several templates."""

    @classmethod
    def of(cls, pod: Pod, policy: Policy, request: Request, facts: Facts) -> Context:
        """Return the context of a Pod."""
        scope = Scope(policy, request, facts)
        defaults = facts.defaults.get(request.namespace)
        # API servers have given them to a Pod already.
        if defaults and not (request.fail_closed and pod.kind == "Pod"):
            pod.take(defaults)
        requests = device_requests(pod, scope)
        if not requests:
            return cls(policy, request, facts)
        if any(len(device_request.pools) > 1 for device_request in requests):
            requests = with_candidates(pod, requests, scope)
        distinct: dict[tuple[Pool, ...], DeviceRequest] = {}
        pools: dict[Pool, None] = {}
        requesting: set[tuple[ContainerKind, int]] = set()
        for device_request in requests:
            if device_request.container:
                requesting.add(device_request.container)
            if device_request.pools not in distinct:
                distinct[device_request.pools] = device_request
                pools |= dict.fromkeys(device_request.pools)
        return cls(
            policy, request, facts, requests, tuple(distinct.values()), pools, frozenset(requesting)
        )

    @property
    def hardening(self) -> EffectiveHardening:
        """The security settings that the policy has for the Pod."""
        return self.policy.hardening_of(self.actions, self.requested_pools)

    @property
    def old_spec(self) -> PodSpec | None:
        """The spec of the stored Pod, on UPDATE; ``None`` if it is malformed."""
        return self._old.spec

    @property
    def old_owners(self) -> Sequence[OwnerReference]:
        """The owners of the stored Pod, on UPDATE."""
        metadata = self._old.metadata
        return (metadata and metadata.owner_references) or ()

    @property
    def _old(self) -> PodTemplate:
        old = self.request.old or {}
        try:
            return convert(old, PodTemplate) if isinstance(old, dict) else old
        except MalformedObjectError:
            return PodTemplate()

    @property
    def offering_pools(self) -> dict[Pool, None]:
        """The pools that offer devices that the Pod requests, candidates or not."""
        excluded = (
            exclusion.pool for request in self.device_requests for exclusion in request.excluded
        )
        return self.requested_pools | dict.fromkeys(excluded)

    def candidates(self, resource: str) -> tuple[Pool, ...]:
        """Return the candidate pools of the Pod's requests for a resource."""
        return next(
            (request.pools for request in self.device_requests if request.resource == resource), ()
        )

    def why_excluded(self, pool: Pool) -> str:
        """Return why the pool, which offers a requested device, is not a candidate; or nothing."""
        excluded = (other for request in self.device_requests for other in request.excluded)
        return next((describe(other) for other in excluded if other.pool is pool), "")

    def unresolved_claims(self, pod: Pod) -> list[NamedClaim]:
        """Return the claims of the Pod that nothing is known of."""
        return [named for named in self.claims(pod) if named.claim is None]

    def is_undecided(self, pod: Pod) -> bool:
        """Return whether an unknown claim decides if the Pod of a manifest is a GPU Pod.

        Manifests often come without their claims. Webhooks know them, or deny the Pod.
        """
        return (
            not (self.request.fail_closed or self.may_have_device(pod))
            and bool(self.policy.pools_of_class)
            and any(named.is_used for named in self.unresolved_claims(pod))
        )

    def exists(self, pod: Pod) -> bool:
        """Return whether the request updates the Pod itself, and not a template."""
        return pod.kind == "Pod" and self.request.operation == "UPDATE"

    def may_have_device(self, pod: Pod) -> bool:
        """Return whether the Pod is a GPU Pod, as far as is known.

        An existing Pod whose claims cannot be resolved may have devices already.
        """
        if self.device_requests:
            return True
        if not (pod.spec.resource_claims and self.policy.pools_of_class and self.exists(pod)):
            return False
        return any(named.is_used for named in self.unresolved_claims(pod))

    def describe_unresolved_claims(self, pod: Pod) -> str:
        """Return the clause that a finding adds about unresolved claims; empty without any."""
        unresolved = [named.claim_name for named in self.unresolved_claims(pod)]
        if not unresolved:
            return ""
        names = ", ".join(unresolved[:_NAMED_CLAIMS])
        if len(unresolved) > _NAMED_CLAIMS:
            names += f" and {len(unresolved) - _NAMED_CLAIMS} more"
        return f" (unknown resource claims: {names})"


Fact = Literal["nodes", "namespaces", "runtimeclasses", "deviceclasses", "resourceslices"]
"""The plural of a kind. The rules need to know all its objects."""

MissingFact = Fact | Literal["resourceclaims"]
"""A fact that a decision lacks; of claims, rules need only those that the Pod names."""


def missing_facts(pod: Pod, context: Context) -> Iterator[MissingFact]:
    """Yield the facts that are unknown and that may change the verdict on the Pod."""
    if pod.spec.node_name and context.facts.nodes is None:
        yield "nodes"
    if context.facts.namespace_labels is None:
        namespace = context.request.namespace
        allowed = (pool.allowed_namespaces for pool in context.offering_pools)
        if any(
            namespace not in each.names and each.selects(namespace, None) is None
            for each in allowed
            if each
        ):
            yield "namespaces"
    if context.policy.pools_of_class and any(
        named.is_used for named in context.unresolved_claims(pod)
    ):
        yield "resourceclaims"

"""What a rule may know beyond the Pod."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from policies.facts import Facts, Request
from policies.kubernetes.core_v1 import PodSpec, PodTemplate
from policies.kubernetes.decoding import MalformedObjectError, convert
from policies.kubernetes.pod import DeviceResource, Pod
from policies.policy import Policy, Pool
from policies.requests import (
    DeviceRequest,
    NamedClaim,
    device_requests,
    may_request,
    named_claims,
    pool_of_resource,
)

# Each finding names the claims, and a Pod can have thousands of findings.
_NAMED_CLAIMS = 8


class Context(msgspec.Struct, frozen=True):
    """The policy, the request and the cluster facts, and what the Pod requests of the pools.

    A GPU Pod has at least one device request.
    """

    policy: Policy
    request: Request
    facts: Facts
    device_requests: tuple[DeviceRequest, ...] = ()
    written_devices: tuple[DeviceResource, ...] | None = None
    """For the template of a core workload, its devices without mutations: the API server validates
    the template in that form."""

    @classmethod
    def of(cls, pod: Pod, policy: Policy, request: Request, facts: Facts) -> Context:
        """Return the context of a Pod."""
        requests = device_requests(pod, policy, request, facts)
        return cls(policy, request, facts, requests)

    @property
    def old_spec(self) -> PodSpec | None:
        """The spec of the stored Pod, on UPDATE; ``None`` if it is malformed."""
        old = self.request.old or {}
        try:
            return convert(old, PodTemplate).spec if isinstance(old, dict) else old.spec
        except MalformedObjectError:
            return None

    @property
    def requested_pools(self) -> dict[Pool, None]:
        """The pools that the Pod requests devices of, in the order of its requests."""
        return dict.fromkeys(request.pool for request in self.device_requests)

    def may_request(self, pool: Pool) -> bool:
        """Return whether the namespace may request the pool's devices."""
        return may_request(pool, self.request, self.facts)

    def pool_of_resource(self, name: str) -> Pool | None:
        """Return the pool that a resource name in a container's resources stands for."""
        return pool_of_resource(name, self.policy, self.facts)

    def unresolved_claims(self, pod: Pod) -> list[NamedClaim]:
        """Return the claims of the Pod that nothing is known of."""
        return [each for each in self.claims(pod) if each.claim is None]

    def claims(self, pod: Pod) -> Iterator[NamedClaim]:
        """Yield the claims of the Pod."""
        return named_claims(pod, self.request, self.facts)

    def may_have_device(self, pod: Pod) -> bool:
        """Return whether the Pod is a GPU Pod, as far as is known.

        An existing Pod whose claims cannot be resolved may have devices already.
        """
        if self.device_requests:
            return True
        exists = pod.kind == "Pod" and self.request.operation == "UPDATE"
        if not (exists and self.policy.pool_of_class and pod.spec.resource_claims):
            return False
        return any(each.entry.is_used for each in self.unresolved_claims(pod))

    def describe_unresolved_claims(self, pod: Pod) -> str:
        """Return the clause that a finding adds about unresolved claims; empty without any."""
        unresolved = [each.entry.claim for each in self.unresolved_claims(pod)]
        if not unresolved:
            return ""
        names = ", ".join(unresolved[:_NAMED_CLAIMS])
        if len(unresolved) > _NAMED_CLAIMS:
            names += f" and {len(unresolved) - _NAMED_CLAIMS} more"
        return f" (unknown resource claims: {names})"

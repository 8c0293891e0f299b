"""Writes the two webhook configurations, and keeps them as they should be.

The replicas write them once they can answer; no installer does. So there is no configuration
without a replica, the match conditions fit the active policy, and the caBundle carries the current
CA.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from policies.kubernetes.objects import JSONObject
from webhook.kube.client import FORBIDDEN, KubeApi
from webhook.kube.endpoints import ready_endpoints, slices_query
from webhook.kube.errors import ApiError, ClusterError
from webhook.kube.listing import list_all
from webhook.logs import event
from webhook.registration.configurations import RELEASE_LABEL
from webhook.registration.drift import drift, is_own, repaired

_API = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "MutatingWebhookConfiguration": f"{_API}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_API}/validatingwebhookconfigurations",
}
"""The kinds of configurations, and where the API has them."""

_RBAC = "rbac.authorization.k8s.io/v1"
_OWNERS = {
    "clusterrole": (_RBAC, "ClusterRole", f"/apis/{_RBAC}/clusterroles"),
    "clusterrolebinding": (_RBAC, "ClusterRoleBinding", f"/apis/{_RBAC}/clusterrolebindings"),
    "namespace": ("v1", "Namespace", "/api/v1/namespaces"),
}

_log = logging.getLogger("gpufence")


class RegistrationError(ClusterError):
    """The configurations cannot be written as they should be."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A cluster-scoped object of the release, with which the configurations go."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Read ``clusterrole/NAME``; raises ValueError."""
        kind, _, name = text.partition("/")
        if kind.lower() not in _OWNERS or not name:
            kinds = ", ".join(_OWNERS)
            raise ValueError(f"{text!r} is not an owner; write KIND/NAME with one of {kinds}")
        return cls(kind.lower(), name)

    async def reference(self, api: KubeApi) -> JSONObject:
        """Look the object up, and return its ownerReference.

        Raises:
            RegistrationError: there is no such object: whatever it owned would be deleted at once.
            ClusterError: it cannot be looked up.
        """
        api_version, kind, path = _OWNERS[self.kind]
        owner = await api.read(f"{path}/{self.name}")
        if owner is None:
            raise RegistrationError(
                f"{kind} {self.name} does not exist, so it cannot own the webhook configurations; "
                "set --owner to an object of the release"
            )
        uid = owner["metadata"]["uid"]
        return {"apiVersion": api_version, "kind": kind, "name": self.name, "uid": uid}


class Counter(Protocol):
    """Counts writes."""

    def registered(self, kind: str, reason: str) -> None:
        """A configuration of that kind was written: ``created``, ``changed`` or ``drift``."""


class Writer:
    """Writes objects that differ from the desired ones; logs and counts each write.

    ``drift`` returns the differences of a live object from the desired one, and ``repaired`` the
    live object without them.
    """

    def __init__(
        self,
        api: KubeApi,
        counter: Counter,
        drift: Callable[[JSONObject, JSONObject], list[str]],
        repaired: Callable[[JSONObject, JSONObject], JSONObject],
    ) -> None:
        self._api = api
        self._counter = counter
        self._drift = drift
        self._repaired = repaired
        self._written: dict[str, JSONObject] = {}

    async def reconcile(self, path: str, desired: JSONObject, live: JSONObject | None) -> None:
        """Write the object at ``path`` unless the live one is as desired.

        Raises:
            ClusterError: a request failed, or the object does not stay as written.
        """
        differences = ["it is missing"] if live is None else self._drift(desired, live)
        if differences:
            await self._write(path, desired)
            # Drift is a change by other clients since the same object was written.
            rewritten = self._written.get(path) == desired
            reason = "drift" if rewritten else "created" if live is None else "changed"
            self._report(desired["kind"], desired["metadata"]["name"], reason, differences)
        self._written[path] = desired

    async def delete(self, path: str, kind: str, name: str) -> None:
        """Delete an object that is not needed.

        Raises:
            ClusterError: the request failed.
        """
        await self._api.delete(path)
        self._written.pop(path, None)
        self._report(kind, name, "deleted", [])

    def forget(self) -> None:
        """Treat live objects as written by another replica."""
        self._written.clear()

    async def _write(self, path: str, desired: JSONObject) -> None:
        """Apply the object; replace it if that leaves fields of other managers."""
        live = await self._api.apply(path, desired)
        if self._drift(desired, live):
            live = await self._api.replace(path, self._repaired(desired, live))
        if remaining := self._drift(desired, live):
            # Another webhook, or a mutating admission policy, changes it in the same request.
            raise RegistrationError(
                f"{path} does not stay as gpufence writes it: {'; '.join(remaining)}; "
                "metadata.managedFields and the API server's audit log show what changes it"
            )

    def _report(self, kind: str, name: str, reason: str, differences: list[str]) -> None:
        self._counter.registered(kind, reason)
        level = logging.WARNING if reason == "drift" else logging.INFO
        shown = differences[:10]
        event(_log, level, "registered", kind=kind, name=name, reason=reason, differences=shown)


class Registrar:
    """Keeps both webhook configurations as desired."""

    def __init__(self, api: KubeApi, counter: Counter) -> None:
        self._api = api
        self._writer = Writer(api, counter, drift, repaired)
        self.forget = self._writer.forget

    async def register(self, configurations: tuple[JSONObject, ...]) -> None:
        """Read each configuration, and write it if it is not as desired.

        Raises:
            ClusterError: one could not be read or written.
        """
        for desired in configurations:
            path = f"{KINDS[desired['kind']]}/{desired['metadata']['name']}"
            await self._writer.reconcile(path, desired, await self._api.read(path))


async def unregister(api: KubeApi, name: str) -> dict[str, bool]:
    """Delete both configurations; return for each kind whether it was there.

    Raises:
        ClusterError: one could not be deleted.
    """
    return {kind: await api.delete(f"{path}/{name}") for kind, path in KINDS.items()}


async def other_releases(api: KubeApi, name: str) -> frozenset[str]:
    """Return the namespaces of the other releases in the cluster.

    No release may depend on another to start: after an outage of both, each would wait for the
    other. Without the permission to list the configurations, no release is found.

    Raises:
        ClusterError: the request failed.
    """
    labels = ",".join(f"{key}={value}" for key, value in RELEASE_LABEL.items())
    path = KINDS["ValidatingWebhookConfiguration"]
    try:
        registered = await list_all(api, path, JSONObject, lambda obj: obj, labels=labels)
    except ApiError as error:
        if error.status == FORBIDDEN:
            return frozenset()
        raise
    return frozenset(
        service["namespace"]
        for configuration in registered
        if configuration["metadata"]["name"] != name
        for webhook in configuration.get("webhooks") or ()
        if is_own(webhook.get("name"))
        if (service := (webhook.get("clientConfig") or {}).get("service"))
    )


async def is_reachable(api: KubeApi, service: tuple[str, str, int]) -> bool:
    """Return whether API servers have an address for the Service: a ready endpoint.

    Where endpoints may not be looked at, nothing is waited for.

    Raises:
        ClusterError: the request failed.
    """
    namespace, name, _ = service
    try:
        slices = await api.read(*slices_query(namespace, name))
    except ApiError as error:
        if error.status == FORBIDDEN:
            return True
        raise
    return any(ready_endpoints(item) for item in (slices or {}).get("items") or ())

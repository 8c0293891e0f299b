"""Writes the two webhook configurations, and keeps them as they should be.

The replicas write them once they can answer; no installer does. So there is no configuration
without a replica, the match conditions fit the active policy, and the caBundle carries the current
CA.
"""

from __future__ import annotations

import logging
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


class Registrar:
    """Keeps both configurations as they are wanted; one pass at a time."""

    def __init__(self, api: KubeApi, counter: Counter) -> None:
        self._api = api
        self._counter = counter
        self._written: dict[str, JSONObject] = {}

    async def register(self, configurations: tuple[JSONObject, ...]) -> None:
        """Look at each configuration, and write it if it is not as wanted.

        Raises:
            ClusterError: one could not be read or written.
        """
        for desired in configurations:
            kind = desired["kind"]
            path = f"{KINDS[kind]}/{desired['metadata']['name']}"
            live = await self._api.read(path)
            differences = ["it is missing"] if live is None else drift(desired, live)
            if differences:
                await self._write(path, desired)
                self._report(kind, desired, live, differences)
            self._written[kind] = desired

    def forget(self) -> None:
        """Take whatever is found next for what others are meant to have written."""
        self._written.clear()

    async def _write(self, path: str, desired: JSONObject) -> None:
        """Apply. Replace if the apply leaves what others have added to gpufence's webhooks."""
        live = await self._api.apply(path, desired)
        if drift(desired, live):
            live = await self._api.replace(path, repaired(desired, live))
        if remaining := drift(desired, live):
            # A mutating admission policy, or another webhook, has the last word there.
            raise RegistrationError(
                f"{path} does not stay as it was written: {'; '.join(remaining)}; see who changes "
                "it in metadata.managedFields and in the API server's audit log"
            )

    def _report(
        self, kind: str, desired: JSONObject, live: JSONObject | None, differences: list[str]
    ) -> None:
        """Log and count the write. Drift is a change by others since the same was written."""
        rewritten = self._written.get(kind) == desired
        reason = "drift" if rewritten else "created" if live is None else "changed"
        self._counter.registered(kind, reason)
        level = logging.WARNING if reason == "drift" else logging.INFO
        event(_log, level, "registered", kind=kind, reason=reason, differences=differences[:10])


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
        registered = await list_all(api, path, lambda obj: obj, labels=labels)
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

"""Writes webhook configurations and admission policies, and keeps them as they should be.

The controller writes the configurations once a replica can answer; no installer does. So there is
no configuration without a replica, the match conditions fit the active policy, and the caBundle
carries the current CA.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from policies.kubernetes.objects import JSONObject
from webhook.controller.drift import Difference, drift, repaired
from webhook.controller.text.objects import API_VERSION, BINDING_KIND, POLICY_KIND, all_names
from webhook.kube.endpoints import ready_endpoints, slices_query
from webhook.kube.errors import FORBIDDEN, ApiError, ClusterError, where_forbidden
from webhook.kube.writer import KubeWriter
from webhook.logs import event

_API = f"/apis/{API_VERSION}"
KINDS = {
    "MutatingWebhookConfiguration": f"{_API}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_API}/validatingwebhookconfigurations",
}
"""The kinds of configurations, and where the API has them."""
POLICY_KINDS = {
    POLICY_KIND: f"{_API}/validatingadmissionpolicies",
    BINDING_KIND: f"{_API}/validatingadmissionpolicybindings",
}
"""The kinds of the in-tree policies: the controller writes the policies, the chart their bindings.
"""
_SINCE = {POLICY_KIND: "Kubernetes 1.30"}
"""The first version that serves the kind and its bindings as v1."""

_log = logging.getLogger("gpufence")


class RegistrationError(ClusterError):
    """The configurations cannot be written as they should be."""


class Registrar:
    """Keeps the objects of one installation as desired, and logs each write.

    ``written`` is called with the kind, and the reason: created, changed, drift or deleted.
    """

    def __init__(self, api: KubeWriter, written: Callable[[str, str], None], name: str) -> None:
        self._api = api
        self._count = written
        self._name = name
        self._written: dict[str, JSONObject] = {}
        self._reported: set[str] = set()

    async def register(self, configurations: Iterable[JSONObject]) -> None:
        """Read each webhook configuration, and write it if it is not as desired.

        Raises:
            ClusterError: one could not be read or written, or does not stay as written.
        """
        for desired in configurations:
            path = f"{KINDS[desired['kind']]}/{self._name}"
            await self._reconcile(path, desired, await self._api.read(path))

    async def register_policies(self, desired: Iterable[JSONObject]) -> None:
        """Write the admission policies that differ, and delete all others of this release.

        What is no longer wanted goes last, so a change leaves no moment without a second line. An
        update takes effect at once. A kind that the API server does not serve as v1 is left alone.
        Bindings are the chart's and are only compared.

        Raises:
            ClusterError: a policy could not be read or written, or does not stay as written; or a
                binding is missing or differs.
        """
        live = await admission_policies_of(self._api, self._name)
        wanted: AdmissionPolicies = {kind: {} for kind in POLICY_KINDS}
        for obj in desired:
            wanted[obj["kind"]][obj["metadata"]["name"]] = obj
        for kind, objects in wanted.items():
            if kind not in live and objects and kind in _SINCE:
                self._report(f"the API server does not serve {kind} v1; {_SINCE[kind]} does")
        for name, obj in wanted[POLICY_KIND].items() if POLICY_KIND in live else ():
            path = f"{POLICY_KINDS[POLICY_KIND]}/{name}"
            await self._reconcile(path, obj, live[POLICY_KIND].get(name))
        # A binding has no effect without its policy, and is the chart's.
        for name in live.get(POLICY_KIND, {}).keys() - wanted[POLICY_KIND].keys():
            path = f"{POLICY_KINDS[POLICY_KIND]}/{name}"
            with where_forbidden(f"delete {POLICY_KIND} {name}, which another version has written"):
                await self._api.delete(path)
            self._written.pop(path, None)
            self._note(POLICY_KIND, name, "deleted", [])
        for warning in type_warnings(live):
            self._report(warning)
        for name, obj in wanted[BINDING_KIND].items() if BINDING_KIND in live else ():
            if differences := _differences(obj, live[BINDING_KIND].get(name)):
                raise RegistrationError(
                    f"delete {BINDING_KIND} {name}, and restore the release (helm upgrade): "
                    f"{'; '.join(map(str, differences))}"
                )

    async def _reconcile(self, path: str, desired: JSONObject, live: JSONObject | None) -> None:
        if differences := _differences(desired, live):
            await self._write(path, desired)
            # Drift is a change by other clients since the same object was written.
            rewritten = self._written.get(path) == desired
            reason = "drift" if rewritten else "created" if live is None else "changed"
            self._note(desired["kind"], desired["metadata"]["name"], reason, differences)
        self._written[path] = desired

    async def _write(self, path: str, desired: JSONObject) -> None:
        """Apply the object; replace it if that leaves fields of other managers."""
        live = await self._api.apply(path, desired)
        if drift(desired, live):
            live = await self._api.replace(path, repaired(desired, live))
        if remaining := drift(desired, live):
            # Another webhook, or a mutating admission policy, changes it in the same request.
            raise RegistrationError(
                f"{path} does not stay as gpufence writes it: {'; '.join(map(str, remaining))}; "
                "metadata.managedFields and the API server's audit log show what changes it"
            )

    def _note(self, kind: str, name: str, reason: str, differences: list[Difference]) -> None:
        self._count(kind, reason)
        level = logging.WARNING if reason == "drift" else logging.INFO
        shown = [str(difference) for difference in differences[:10]]
        event(_log, level, "registered", kind=kind, name=name, reason=reason, differences=shown)

    def _report(self, problem: str) -> None:
        """Log a problem of the second line once."""
        if problem not in self._reported:
            self._reported.add(problem)
            event(_log, logging.WARNING, "second line incomplete", problem=problem)


def _differences(desired: JSONObject, live: JSONObject | None) -> list[Difference]:
    return [Difference("", "it is missing")] if live is None else drift(desired, live)


AdmissionPolicies = dict[str, dict[str, JSONObject]]
"""By kind, policies before bindings: the objects by name. Kinds that are not served are left out.
"""


async def configurations_of(api: KubeWriter, name: str) -> dict[str, JSONObject]:
    """Return the webhook configurations in the cluster by kind; empty ones do not exist."""
    return {kind: await api.read(f"{path}/{name}") or {} for kind, path in KINDS.items()}


async def admission_policies_of(api: KubeWriter, name: str) -> AdmissionPolicies:
    """Return the admission policies of the installation."""
    names = all_names(name)
    live: AdmissionPolicies = {}
    for kind, path in POLICY_KINDS.items():
        listed = await api.read(path)
        if listed is not None:
            items = {item["metadata"]["name"]: item for item in listed.get("items") or ()}
            live[kind] = {each: items[each] for each in names if each in items}
    return live


def type_warnings(live: AdmissionPolicies) -> Iterator[str]:
    """Yield what the API server's type check of the policies warns of."""
    for name, policy in live.get(POLICY_KIND, {}).items():
        checked = (policy.get("status") or {}).get("typeChecking") or {}
        for warning in checked.get("expressionWarnings") or ():
            yield f"{name}: {warning.get('fieldRef')}: {warning.get('warning')}"


async def is_reachable(api: KubeWriter, service: tuple[str, str, int]) -> bool:
    """Return whether API servers have an address for the Service: a ready endpoint.

    Where endpoints may not be looked at, nothing is waited for.
    """
    namespace, name, _ = service
    try:
        slices = await api.read(*slices_query(namespace, name))
    except ApiError as error:
        if error.status == FORBIDDEN:
            return True
        raise
    return any(ready_endpoints(item) for item in (slices or {}).get("items") or ())

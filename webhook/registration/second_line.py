"""Writes the in-tree policies and their bindings, and keeps them as they are compiled.

Policies come before their bindings, and what is no longer wanted goes last, so a change leaves no
moment without a second line. An update of an object takes effect at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from policies.kubernetes.objects import JSONObject
from webhook.cel.admission_policies import (
    API_VERSION,
    BINDING_KIND,
    POLICY_KIND,
    all_names,
)
from webhook.kube.client import KubeApi
from webhook.logs import event
from webhook.registration.drift import metadata_drift, with_metadata
from webhook.registration.registrar import Counter, Writer

PATHS = {
    POLICY_KIND: f"/apis/{API_VERSION}/validatingadmissionpolicies",
    BINDING_KIND: f"/apis/{API_VERSION}/validatingadmissionpolicybindings",
}
"""The kinds, in the order in which they are written, and where the API has them."""

_log = logging.getLogger("gpufence")


class AdmissionPolicyRegistrar:
    """Keeps the policies and bindings of one installation as desired."""

    def __init__(self, api: KubeApi, counter: Counter, name: str) -> None:
        self._api = api
        self._name = name
        self._writer = Writer(api, counter, policy_drift, _repaired)
        self.forget = self._writer.forget
        self._reported: set[str] = set()

    async def register(self, desired: Iterable[JSONObject]) -> None:
        """Write what differs from ``desired``, and delete all other objects of this release.

        An API server that does not serve ValidatingAdmissionPolicy v1 (before 1.30) is left alone.

        Raises:
            ClusterError: an object could not be read, written or deleted.
        """
        desired = list(desired)
        live = await find(self._api, self._name)
        if live is None:
            self._report("the API server does not serve ValidatingAdmissionPolicy v1")
            return
        for kind, path in PATHS.items():
            for obj in desired:
                if obj["kind"] == kind:
                    name = obj["metadata"]["name"]
                    await self._writer.reconcile(f"{path}/{name}", obj, live[kind].get(name))
        names = {obj["metadata"]["name"] for obj in desired}
        for kind, path in reversed(PATHS.items()):
            for name in sorted(live[kind].keys() - names):
                await self._writer.delete(f"{path}/{name}", kind, name)
        for warning in type_warnings(live[POLICY_KIND].values()):
            self._report(warning)

    def _report(self, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._reported:
            self._reported.add(problem)
            event(_log, logging.WARNING, "second line incomplete", problem=problem)


async def find(api: KubeApi, name: str) -> dict[str, dict[str, JSONObject]] | None:
    """Return the objects of the installation, by kind and name; None if the API serves no such.

    Raises:
        ClusterError: they cannot be listed.
    """
    names = set(all_names(name))
    live: dict[str, dict[str, JSONObject]] = {}
    for kind, path in PATHS.items():
        listed = await api.read(path)
        if listed is None:
            return None
        live[kind] = {
            item["metadata"]["name"]: item
            for item in listed.get("items") or ()
            if item["metadata"]["name"] in names
        }
    return live


async def delete(api: KubeApi, name: str) -> dict[str, bool]:
    """Delete the bindings and policies of the installation; return by kind whether one was there.

    Raises:
        ClusterError: they cannot be listed or deleted.
    """
    live = await find(api, name) or {kind: {} for kind in PATHS}
    deleted = dict.fromkeys(PATHS, False)
    for kind, path in reversed(PATHS.items()):
        for object_name in sorted(live[kind]):
            deleted[kind] |= await api.delete(f"{path}/{object_name}")
    return deleted


def policy_drift(desired: JSONObject, live: JSONObject) -> list[str]:
    """Return what differs from the wanted policy or binding, a clause each."""
    differences = metadata_drift(desired["metadata"], live.get("metadata") or {})
    spec = live.get("spec") or {}
    fields = sorted({*desired["spec"], *spec})
    changed = [f"spec.{f} differs" for f in fields if desired["spec"].get(f) != spec.get(f)]
    return [*differences, *changed]


def _repaired(desired: JSONObject, live: JSONObject) -> JSONObject:
    return {**desired, "metadata": with_metadata(desired["metadata"], live["metadata"])}


def type_warnings(policies: Iterable[JSONObject]) -> Iterator[str]:
    """Yield what the API server's type check of the policies warns of."""
    for policy in policies:
        checked = (policy.get("status") or {}).get("typeChecking") or {}
        for warning in checked.get("expressionWarnings") or ():
            name = policy["metadata"]["name"]
            yield f"{name}: {warning.get('fieldRef')}: {warning.get('warning')}"

"""Writes webhook configurations and admission policies, and keeps them as they should be.

The controller writes the configurations once a replica can answer; no installer does. So there is
no configuration without a replica, the match conditions fit the active policy, and the caBundle
carries the current CA.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from policies.api_servers import IN_TREE_RULES
from policies.kubernetes.objects import JSONObject
from webhook.controller.drift import Difference, drift, repaired
from webhook.controller.text.objects import BINDING_KIND, POLICY_KIND
from webhook.controller.watched import Objects
from webhook.kube.client import KubeApi
from webhook.kube.errors import FORBIDDEN, ApiError, ClusterError
from webhook.kube.writer import FIELD_MANAGER, KubeWriter
from webhook.logs import event
from webhook.registered import API_VERSION, KINDS
from webhook.wording import counted

POLICY_KINDS = {
    POLICY_KIND: f"/apis/{API_VERSION}/validatingadmissionpolicies",
    BINDING_KIND: f"/apis/{API_VERSION}/validatingadmissionpolicybindings",
}
"""The kinds of the in-tree policies: the controller writes the policies, the chart their bindings.
"""
_REMEMBERED = timedelta(minutes=10)
"""How long the status names a repair."""
_OFTEN = 3
"""So many repairs of one object within that time are the work of a client that does not stop."""

_log = logging.getLogger("gpufence")


class RegistrationError(ClusterError):
    """The configurations cannot be written as they should be."""


class Registrar:
    """Keeps the objects of one installation as desired, and logs each write.

    ``written`` is called with the kind, and the reason: created, changed, drift or deleted.
    """

    def __init__(
        self,
        api: KubeWriter,
        objects: Objects,
        written: Callable[[str, str], None],
        name: str,
        *,
        bindings: bool = True,
    ) -> None:
        self._api = api
        self._objects = objects
        self._count = written
        self._written: dict[str, JSONObject] = {}
        self._warnings: set[str] = set()
        self._repairs: deque[tuple[datetime, str, str]] = deque()
        self._policies = [f"{POLICY_KINDS[POLICY_KIND]}/{name}-{rule}" for rule in IN_TREE_RULES]
        self._bindings = [f"{POLICY_KINDS[BINDING_KIND]}/{name}-{rule}" for rule in IN_TREE_RULES]
        self._configurations = [f"{path}/{name}" for path in KINDS.values()]
        for path in (*self._configurations, *self._policies, *(self._bindings if bindings else ())):
            objects.watch(path)

    async def register(self, configurations: Iterable[JSONObject]) -> None:
        """Write each webhook configuration that is not as desired.

        Raises:
            ClusterError: one is not known, could not be written, or does not stay as written.
        """
        for path, desired in zip(self._configurations, configurations, strict=True):
            await self._reconcile(path, desired)

    async def register_policies(self, desired: Iterable[JSONObject]) -> None:
        """Write the admission policies that differ, and delete all others of this release.

        What is no longer wanted goes last, so a change leaves no moment without a second line. An
        update takes effect at once. Bindings are the chart's and are only compared.

        Raises:
            ClusterError: a policy is not known, could not be written, or does not stay as written;
                or a binding is missing or differs.
        """
        wanted = {
            f"{POLICY_KINDS[each['kind']]}/{each['metadata']['name']}": each for each in desired
        }
        for path in filter(wanted.get, self._policies):
            await self._reconcile(path, wanted[path])
        for path in filter(self._objects.read, self._policies):
            live = self._objects.read(path) or {}
            for warning in {*type_warnings(live)} - self._warnings:
                self._warnings.add(warning)
                event(_log, logging.WARNING, "second line incomplete", problem=warning)
            # A binding has no effect without its policy, and is the chart's.
            if path not in wanted:
                await self._api.delete(path)
                self._objects.written(path, None)
                self._written.pop(path, None)
                self._note(POLICY_KIND, path, "deleted", [])
        for path in filter(wanted.get, self._bindings):
            if differences := _differences(wanted[path], self._objects.read(path)):
                raise RegistrationError(
                    f"delete {_title(BINDING_KIND, path)}, and restore the release (helm upgrade): "
                    f"{'; '.join(map(str, differences))}"
                )

    def drift(self, now: datetime) -> tuple[str, bool]:
        """Return which repairs there were lately, and whether another client does not stop."""
        while self._repairs and now - self._repairs[0][0] > _REMEMBERED:
            self._repairs.popleft()
        if not self._repairs:
            return "", False
        count, (at, path, last) = len(self._repairs), self._repairs[-1]
        lately = f"{counted(count, 'repair')} in {_REMEMBERED.seconds // 60} minutes, the last at"
        same = sum(each[1] == path for each in self._repairs)
        return f"{lately} {at:%H:%M:%S} UTC: {last}.", same >= _OFTEN

    async def _reconcile(self, path: str, desired: JSONObject) -> None:
        live, kind = self._objects.read(path), desired["kind"]
        if differences := _differences(desired, live):
            # Drift is a change by other clients since the same object was written.
            rewritten = self._written.get(path) == desired
            reason = "drift" if rewritten else "created" if live is None else "changed"
            if rewritten:
                what = f"{_title(kind, path)}{_change(live, differences)}"
                self._repairs.append((self._api.clock.now(), path, what))
            await self._write(path, desired)
            self._note(kind, path, reason, differences)
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
        self._objects.written(path, live)

    def _note(self, kind: str, path: str, reason: str, differences: list[Difference]) -> None:
        self._count(kind, reason)
        level = logging.WARNING if reason == "drift" else logging.INFO
        shown = [str(difference) for difference in differences[:10]]
        name = path.rpartition("/")[2]
        event(_log, level, "registered", kind=kind, name=name, reason=reason, differences=shown)


def _differences(desired: JSONObject, live: JSONObject | None) -> list[Difference]:
    return [Difference("", "it is missing")] if live is None else drift(desired, live)


def _title(kind: str, path: str) -> str:
    return f"{kind} {path.rpartition('/')[2]}"


def configurations_of(objects: Objects, name: str) -> dict[str, JSONObject]:
    """Return the webhook configurations in the cluster by kind; empty ones do not exist."""
    return {kind: objects.read(f"{path}/{name}") or {} for kind, path in KINDS.items()}


def last_change(obj: JSONObject) -> datetime | None:
    """Return when the object was last written, as the API server notes it."""
    changes = _changes(obj)
    return datetime.fromisoformat(changes[-1][0]) if changes else None


def _change(live: JSONObject | None, differences: list[Difference]) -> str:
    """Return what happened to the object, and by whom if its managedFields say it."""
    if live is None:
        return " was deleted"
    _, name = (_changes(live) or [("", FIELD_MANAGER)])[-1]
    by = f" was changed by {name}" if name != FIELD_MANAGER else ""
    first, *more = differences
    return f"{by}: {first}{f', and {len(more)} more' if more else ''}"


def _changes(obj: JSONObject) -> list[tuple[str, str]]:
    """Return the time and name of each client that owns a field, the latest last."""
    managed = obj.get("metadata", {}).get("managedFields") or ()
    return sorted((each["time"], each.get("manager", "")) for each in managed if "time" in each)


def type_warnings(policy: JSONObject) -> Iterator[str]:
    """Yield what the API server's type check of an admission policy warns of."""
    checked = (policy.get("status") or {}).get("typeChecking") or {}
    for warning in checked.get("expressionWarnings") or ():
        where = f"{policy['metadata']['name']}: {warning.get('fieldRef')}"
        yield f"{where}: {warning.get('warning')}"


async def is_reachable(api: KubeApi, service: tuple[str, str, int]) -> bool:
    """Return whether API servers have an address for the Service: a ready endpoint.

    Where endpoints may not be looked at, nothing is waited for.
    """
    try:
        return await ready_endpoints(api, *service[:2]) > 0
    except ApiError as error:
        if error.status == FORBIDDEN:
            return True
        raise


async def ready_endpoints(api: KubeApi, namespace: str, service: str) -> int:
    """Return how many endpoints of a Service are ready; one without the condition is.

    Source: ``k8s.io/api/discovery/v1``, ``types.go``.

    Raises:
        ClusterError: the request failed.
    """
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = await api.read(path, {"labelSelector": f"kubernetes.io/service-name={service}"})
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for item in (found or {}).get("items") or ()
        for endpoint in item.get("endpoints") or ()
    )

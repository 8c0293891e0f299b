"""The authority and the leaf in their Secret: created, renewed and followed by every replica.

All replicas do the same, and none waits for another: whoever writes first is followed by the rest,
since the API server refuses a write that is based on an older Secret. What is to be written, and
when, is decided in ``certs.succession``.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from certs.names import Names
from certs.secret import read_secret, write_secret
from certs.source import HeldSource
from certs.succession import (
    Change,
    Plan,
    Stored,
    Timing,
    carry_out,
    is_live,
    is_of_use,
    plan,
    stage_successor,
)
from webhook.kube.client import CONFLICT, JSONObject, KubeApi
from webhook.kube.errors import ApiError, ClusterError
from webhook.logs import event
from webhook.registration.drift import bundles
from webhook.registration.registrar import KINDS

_ATTEMPTS = 5

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True)
class SecretName:
    """Where the Secret is."""

    namespace: str
    name: str

    @property
    def collection(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    def __str__(self) -> str:
        return f"Secret {self.namespace}/{self.name}"


class CertificateReconciler:
    """Keeps the Secret as it should be, and hands its leaf to ``source``.

    ``configuration`` is the name of the webhook configurations whose caBundle must carry an
    authority before it signs. ``clock`` returns seconds that never go back; ``changed`` is called
    for each change that this replica made.
    """

    def __init__(
        self,
        api: KubeApi,
        secret: SecretName,
        names: Names,
        timing: Timing,
        source: HeldSource,
        *,
        configuration: str,
        clock: Callable[[], float],
        changed: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        self.stored: Stored | None = None
        """What the Secret held when it was last read or written."""
        self._api = api
        self._secret = secret
        self._names = names
        self._timing = timing
        self._source = source
        self._configuration = configuration
        self._clock = clock
        self._changed = changed
        self._carried: tuple[tuple[bytes, ...], float] | None = None

    async def reconcile(self, now: datetime) -> Stored:
        """Read the Secret, make the change that is due, if one is, and return what it then holds.

        Raises:
            ClusterError: it could not be read or written.
            CertificateError: a leaf cannot be issued.
        """
        for _ in range(_ATTEMPTS):
            stored = await self._attempt(now)
            if stored is not None:
                self.stored = stored
                self._source.hold(stored.leaf)
                return stored
        raise ClusterError(
            f"{self._secret} was changed by others {_ATTEMPTS} times in a row; see who else writes "
            "it in its metadata.managedFields"
        )

    async def _attempt(self, now: datetime) -> Stored | None:
        """Return what the Secret holds after the change that is due; None if somebody else wrote.

        What is issued here is for API servers, and valid by their clock.
        """
        found = await self._api.read(self._secret.path)
        now = self._api.time() or now
        stored = read_secret(found) if found is not None else None
        if back := await self._put_back(stored, now):
            due, after = back
        else:
            due = await self._due(stored, now)
            if stored is not None and due.change is Change.NOTHING:
                return stored
            after = carry_out(due.change, stored, self._names, now, self._timing)
        if not await self._write(after, found):
            return None
        where = str(self._secret)
        event(
            _log,
            logging.INFO,
            "certificate change",
            change=due.change,
            reason=due.reason,
            secret=where,
        )
        self._changed(due.change)
        return after

    async def _put_back(self, found: Stored | None, now: datetime) -> tuple[Plan, Stored] | None:
        """Return what to write where somebody has changed the Secret by hand; None to go on.

        Whoever emptied, deleted or edited the Secret of a running server did not mean to break it.
        """
        served = self.stored
        if served is None or found == served:
            return None
        if found is None:
            return Plan(Change.CREATE, "the Secret was emptied or deleted"), served
        if not is_live(served, now):
            return None
        if not is_of_use(found, now):
            return Plan(Change.CREATE, "what was put into the Secret cannot be used"), served
        # Whoever could not look for long may have missed a whole succession.
        if found.follows(served) or await self._is_carried(found):
            return None
        return Plan(Change.PUBLISH, "another authority was put into the Secret"), stage_successor(
            served, found, now
        )

    async def _due(self, stored: Stored | None, now: datetime) -> Plan:
        carried_for = await self._carried_for(stored) if stored and stored.next else None
        return plan(stored, self._names, now, self._timing, carried_for)

    async def _carried_for(self, stored: Stored) -> timedelta | None:
        """Return for how long every configuration was seen to carry all of the authorities."""
        if not await self._is_carried(stored):
            self._carried = None
            return None
        if self._carried is None or self._carried[0] != stored.authorities:
            self._carried = stored.authorities, self._clock()
        return timedelta(seconds=self._clock() - self._carried[1])

    async def _is_carried(self, stored: Stored) -> bool:
        for path in KINDS.values():
            configuration = await self._api.read(f"{path}/{self._configuration}")
            found = list(bundles(configuration or {}))
            if not found or not all(stored.is_carried_by(_decoded(bundle)) for bundle in found):
                return False
        return True

    async def _write(self, stored: Stored, found: JSONObject | None) -> bool:
        """Write the Secret; tell whether nobody else has written it in between."""
        wanted = write_secret(stored, self._secret.name, self._secret.namespace, found)
        try:
            if found is None:
                await self._api.create(self._secret.collection, wanted)
            else:
                await self._api.replace(self._secret.path, wanted)
        except ApiError as error:
            if error.status == CONFLICT:
                return False
            raise
        return True


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""

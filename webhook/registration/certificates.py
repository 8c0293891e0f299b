"""The CA and the serving certificate in their Secret: every replica creates, renews and reads them.

All replicas do the same, and none waits for another. The first write wins, because the API server
rejects a write that is based on an older Secret. ``certs.succession`` decides what to write, and
when.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from certs.names import Names
from certs.secret import read_secret, read_served, write_secret
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

CERT_MANAGER = "cert-manager.io/certificate-name"
"""The annotation of a Secret that cert-manager writes."""

_ATTEMPTS = 5

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True)
class SecretName:
    """The namespace and name of the Secret."""

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
    """Keeps the Secret as it should be, and passes its serving certificate to ``source``.

    ``configuration`` is the name of the webhook configurations, whose caBundle must carry a CA
    before it signs. ``clock`` returns monotonic seconds; ``changed`` is called for each change that
    this replica makes.
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
        """Read the Secret, make the change that is due, if any, and return what it then holds.

        Raises:
            ClusterError: a request failed.
            CertificateError: a certificate cannot be issued.
        """
        for _ in range(_ATTEMPTS):
            stored = await self._attempt(now)
            if stored is not None:
                self.stored = stored
                self._source.hold(stored.leaf)
                return stored
        raise ClusterError(
            f"other clients changed {self._secret} {_ATTEMPTS} times in a row; see "
            "metadata.managedFields for who writes it"
        )

    async def _attempt(self, now: datetime) -> Stored | None:
        """Return what the Secret holds after the change that is due; None after a conflict.

        Certificates are issued for API servers, and are valid by their clock.
        """
        secret = await self._api.read(self._secret.path)
        now = self._api.time() or now
        if secret is not None and CERT_MANAGER in (secret["metadata"].get("annotations") or {}):
            foreign = read_served(secret)
            if foreign is None or is_live(foreign, now):
                return await self._follow(foreign)
            # cert-manager no longer renews it, and this replica is there to do so.
            del secret["metadata"]["annotations"][CERT_MANAGER]
            self.stored = None
        stored = read_secret(secret) if secret is not None else None
        if restored := await self._restore(stored, now):
            due, after = restored
        else:
            due = await self._due(stored, now)
            if stored is not None and due.change is Change.NOTHING:
                return stored
            after = carry_out(due.change, stored, self._names, now, self._timing)
        if not await self._write(after, secret):
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

    async def _follow(self, foreign: Stored | None) -> Stored:
        """Return what to serve, and which CAs to publish, if cert-manager writes the Secret.

        So it is while an upgrade replaces replicas that issue their certificates with others that
        do not. Nothing is written. The pair of cert-manager is served once every configuration has
        carried its CA for a while. Both CAs are published, because some replicas serve the old pair
        for longer than others.
        """
        served = self.stored
        if foreign is None:
            if served is not None:
                return served
            raise ClusterError(
                f"cert-manager writes {self._secret}, which has no certificate yet; see kubectl "
                "describe certificate"
            )
        if served is None:
            return foreign
        if foreign.authority == served.authority:
            return replace(served, leaf=foreign.leaf)
        both = replace(served, next=foreign.authority)
        carried_for = await self._carried_for(both)
        if carried_for is None or carried_for < self._timing.settle:
            return both
        return replace(foreign, old=served.authority.certificate_pem)

    async def _restore(self, stored: Stored | None, now: datetime) -> tuple[Plan, Stored] | None:
        """Return what to write if the Secret was changed by hand; None if it was not.

        A person who empties, deletes or edits the Secret of a running release does not intend to
        break it.
        """
        served = self.stored
        if served is None or stored == served:
            return None
        if stored is None:
            return Plan(Change.CREATE, "the Secret was emptied or deleted"), served
        if not is_live(served, now):
            return None
        if not is_of_use(stored, now):
            return Plan(Change.CREATE, "the Secret has no usable certificate"), served
        own, other = (Stored(each.authority, each.leaf) for each in (served, stored))
        if own.is_carried_by(stored.bundle):
            return None
        # A replica that could not read the Secret for long may have missed a whole succession. But
        # as long as configurations carry the CA that it serves, so may other replicas: a backup
        # that lacks this CA must not take it from the configurations at once.
        succeeded = other.is_carried_by(served.bundle) or await self._is_carried(stored)
        if succeeded and not await self._is_carried(own):
            return None
        return Plan(Change.PUBLISH, "the Secret holds another CA"), stage_successor(
            served, stored, now
        )

    async def _due(self, stored: Stored | None, now: datetime) -> Plan:
        carried_for = await self._carried_for(stored) if stored and stored.next else None
        return plan(stored, self._names, now, self._timing, carried_for)

    async def _carried_for(self, stored: Stored) -> timedelta | None:
        """Return for how long every configuration has carried all CAs."""
        if not await self._is_carried(stored):
            self._carried = None
            return None
        if self._carried is None or self._carried[0] != stored.authorities:
            self._carried = stored.authorities, self._clock()
        return timedelta(seconds=self._clock() - self._carried[1])

    async def _is_carried(self, stored: Stored) -> bool:
        for path in KINDS.values():
            configuration = await self._api.read(f"{path}/{self._configuration}")
            carried = list(bundles(configuration or {}))
            if not carried or not all(stored.is_carried_by(_decoded(bundle)) for bundle in carried):
                return False
        return True

    async def _write(self, stored: Stored, live: JSONObject | None) -> bool:
        """Write the Secret, and return whether no other client wrote it in between."""
        desired = write_secret(stored, self._secret.name, self._secret.namespace, live)
        try:
            if live is None:
                await self._api.create(self._secret.collection, desired)
            else:
                await self._api.replace(self._secret.path, desired)
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

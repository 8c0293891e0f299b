"""The CA and the serving certificate in their Secret: every replica creates, renews and reads them.

All replicas do the same, and none waits for another. The first write wins, because the API server
rejects a write that is based on an older Secret. `certs.secret` decides what to write, and when.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from certs import CertificateError
from certs.files import PairSource
from certs.keypair import KeyPair, Names
from certs.secret import Change, Step, Stored, Timing, next_step, read_secret, write_secret
from policies.kubernetes.objects import JSONObject
from webhook.controller.cel.configurations import Registration
from webhook.controller.registrar import configurations_of
from webhook.controller.trust import ca_bundles
from webhook.kube.client import KubeApi
from webhook.kube.errors import CONFLICT, ApiError, ClusterError
from webhook.logs import event

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


def names_of(registration: Registration) -> Names:
    """Return the names in the certificate: those by which API servers call gpufence."""
    if registration.service is not None:
        namespace, name, _ = registration.service
        return Names.parse([f"{name}.{namespace}.svc"])
    host = urlsplit(registration.url).hostname or ""
    is_address = ":" in host or host.replace(".", "").isdecimal()
    return Names.parse([], [host]) if is_address else Names.parse([host])


class CertificateReconciler:
    """Keeps the Secret as it should be, and holds the serving certificate that it contains.

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
        *,
        configuration: str,
        clock: Callable[[], float],
        changed: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        self.stored: Stored | None = None
        """What the Secret held when it was last read or written."""
        self.source = PairSource(self._pair, f"tls.crt of {secret}", f"tls.key of {secret}")
        self._api = api
        self._secret = secret
        self._names = names
        self._timing = timing
        self._configuration = configuration
        self._clock = clock
        self._changed = changed
        self._carried: tuple[tuple[bytes, ...], float] | None = None

    async def reconcile(self) -> Stored:
        """Read the Secret, take the step that is due, if any, and return what it then holds.

        Raises:
            ClusterError: a request failed.
            CertificateError: a certificate cannot be issued.
        """
        for _ in range(_ATTEMPTS):
            stored = await self._attempt()
            if stored is not None:
                self.stored = stored
                return stored
        raise ClusterError(
            f"other clients changed {self._secret} {_ATTEMPTS} times in a row; see "
            "metadata.managedFields for who writes it"
        )

    def _pair(self) -> KeyPair:
        if self.stored is None:
            raise CertificateError(
                "has not been read yet",
                where=str(self._secret),
                cure="Wait: the server reads it as soon as it reaches the API server",
            )
        return self.stored.leaf

    async def _attempt(self) -> Stored | None:
        """Return what the Secret holds after the step that is due; None after a conflict.

        Certificates are issued for API servers, and are valid by their clock.
        """
        live = await self._api.read(self._secret.path)
        now = self._api.clock.now()
        if live is not None and CERT_MANAGER in (live["metadata"].get("annotations") or {}):
            raise ClusterError(
                f"cert-manager writes {self._secret}; use another Secret (--secret), or serve with "
                "--tls-cert and --tls-key"
            )
        stored = read_secret(live) if live is not None else None
        step = await self._restore(stored, now)
        if step is None:
            carried_for = await self._carried_for(stored) if stored and stored.next else None
            step = next_step(stored, self._names, now, self._timing, carried_for)
        if step is None:
            return stored
        if not await self._write(step.after, live):
            return None
        event(
            _log,
            logging.INFO,
            "certificate change",
            change=step.change,
            reason=step.reason,
            secret=str(self._secret),
        )
        self._changed(step.change)
        return step.after

    async def _restore(self, stored: Stored | None, now: datetime) -> Step | None:
        """Return what to write if the Secret was changed by hand; None if it was not.

        A person who empties, deletes or edits the Secret of a running release does not intend to
        break it.
        """
        served = self.stored
        if served is None or stored == served:
            return None
        if stored is None:
            return Step(Change.CREATE, "the Secret was emptied or deleted", served)
        if not served.can_serve(now):
            return None
        if not (stored.can_sign(now) or stored.can_serve(now)):
            return Step(Change.CREATE, "the Secret has no usable certificate", served)
        own, other = (Stored(each.authority, each.leaf) for each in (served, stored))
        if own.is_carried_by(stored.bundle):
            return None
        # A replica that could not read the Secret for long may have missed a whole rotation. But as
        # long as configurations carry the CA that it serves, so may other replicas: a backup that
        # lacks this CA must not take it from the configurations at once.
        succeeded = other.is_carried_by(served.bundle) or await self._is_carried(stored)
        if succeeded and not await self._is_carried(own):
            return None
        after = replace(served, next=stored.authority) if stored.can_sign(now) else served
        return Step(Change.PUBLISH, "the Secret holds another CA", after)

    async def _carried_for(self, stored: Stored) -> timedelta | None:
        """Return for how long every configuration has carried all CAs."""
        if not await self._is_carried(stored):
            self._carried = None
            return None
        if self._carried is None or self._carried[0] != stored.authorities:
            self._carried = stored.authorities, self._clock()
        return timedelta(seconds=self._clock() - self._carried[1])

    async def _is_carried(self, stored: Stored) -> bool:
        for configuration in (await configurations_of(self._api, self._configuration)).values():
            carried = ca_bundles(configuration)
            if not carried or not all(map(stored.is_carried_by, carried)):
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

"""What a replica does beside answering: keeps its certificates, leads, and registers itself."""

from __future__ import annotations

import base64
import logging
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from certs.errors import CertificateError
from certs.files import read_file
from certs.keypair import parse_certificates
from certs.names import Names
from certs.source import HeldSource
from certs.succession import Timing
from policies.policy import Policy
from webhook.kube.client import KubeApi
from webhook.kube.credentials import Load
from webhook.kube.errors import ClusterError
from webhook.logs import event
from webhook.metrics.controllers import ControllerMetrics
from webhook.registration.certificates import CertificateReconciler, SecretName
from webhook.registration.configurations import Registration, configurations
from webhook.registration.leader_election import LeaderElector, LeaseTiming
from webhook.registration.registrar import Owner, Registrar, is_reachable

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """How a replica works with its cluster, as plain values.

    ``registration`` is what the configurations say beside the policy; authorities and owner are
    looked up. The certificates come from ``secret``, for ``names``; where it is None they are
    files, and ``ca_file`` is their authority, if the configurations are to carry it.
    """

    load: Load
    namespace: str
    registration: Registration
    register: bool = True
    owner: Owner | None = None
    secret: SecretName | None = None
    names: Names | None = None
    timing: Timing = field(default_factory=Timing)
    lease: LeaseTiming = field(default_factory=LeaseTiming)
    ca_file: Path | None = None
    poll_seconds: float = 5.0


class RegistrationController:
    """One replica's part in the release; ``reconcile`` is called periodically."""

    def __init__(
        self,
        options: ControllerOptions,
        policy: Callable[[], Policy],
        metrics: ControllerMetrics,
        can_serve: Callable[[], bool],
    ) -> None:
        self.source: HeldSource | None = None
        """The serving pair of the Secret; None where the pair comes from files."""
        self._options = options
        self._policy = policy
        self._metrics = metrics
        self._can_serve = can_serve
        self._api = KubeApi(options.load)
        self._registrar = Registrar(self._api, metrics)
        self._certificates = self._certificate_reconciler()
        self._elector = LeaderElector(
            self._api,
            options.namespace,
            options.registration.name,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            clock=time.monotonic,
            timing=options.lease,
        )
        self._was_reachable = False
        metrics.track_leader(lambda: self._elector.leading)

    @property
    def is_leader(self) -> bool:
        """Whether this replica does what one does for all; every one, where none is chosen."""
        return self._elector.leading or not self._options.register

    async def reconcile_certificates(self) -> None:
        """Take up what is in the Secret, and make the change that is due.

        Raises:
            ClusterError, CertificateError: it could not be done.
        """
        if self._certificates is not None:
            stored = await self._certificates.reconcile(datetime.now(UTC))
            self._metrics.authorities(stored)

    async def reconcile(self) -> None:
        """Do what is due.

        Raises:
            ClusterError, CertificateError: something could not be done.
        """
        problem: ClusterError | CertificateError | None = None
        try:
            await self.reconcile_certificates()
        except (ClusterError, CertificateError) as error:
            if self._certificates is None or self._certificates.stored is None:
                raise
            # What was read last is served still, and others wait with whatever needs a newer
            # bundle until the configurations carry it.
            problem = error
        await self._lead()
        if problem is not None:
            raise problem

    async def _lead(self) -> None:
        """Take part in the election, and register where this replica leads."""
        if not (self._options.register and self._can_serve()):
            await self._elector.resign()
            return
        led = self._elector.leading
        if not await self._elector.campaign():
            return
        if not led:
            event(_log, logging.INFO, "leading", lease=self._options.registration.name)
        if self._elector.paused:
            self._registrar.forget()
            raise ClusterError(
                f"not registered, since somebody has run gpufence unregister at "
                f"{self._elector.paused}; gpufence unregister --undo lifts that"
            )
        await self._registrar.register(await self._wanted())
        self._was_reachable = True

    async def close(self) -> None:
        """Let another replica lead, and close the connection."""
        try:
            await self._elector.resign()
        except ClusterError as error:
            event(_log, logging.WARNING, "lease not given up", problem=str(error))
        await self._api.close()

    async def _wanted(self) -> tuple[dict[str, object], ...]:
        options, registration = self._options, self._options.registration
        service = registration.service
        if service and not self._was_reachable and not await is_reachable(self._api, service):
            raise ClusterError(
                f"not registered yet: Service {service[0]}/{service[1]} has no endpoint that is "
                "ready, and API servers would refuse what they cannot ask about"
            )
        owner = await options.owner.reference(self._api) if options.owner else None
        bundle = base64.b64encode(self._authorities()).decode("ascii")
        return configurations(self._policy(), replace(registration, ca_bundle=bundle, owner=owner))

    def _authorities(self) -> bytes:
        if self._certificates is not None and self._certificates.stored is not None:
            return self._certificates.stored.bundle
        file = self._options.ca_file
        if file is None:
            return b""
        pem = read_file(file)
        # API servers store whatever they are given, and with what is none reach nobody.
        parse_certificates(pem, str(file))
        return pem

    def _certificate_reconciler(self) -> CertificateReconciler | None:
        options = self._options
        if options.secret is None or options.names is None:
            return None
        self.source = HeldSource(str(options.secret))
        return CertificateReconciler(
            self._api,
            options.secret,
            options.names,
            options.timing,
            self.source,
            configuration=options.registration.name,
            clock=time.monotonic,
            changed=self._metrics.certificates_changed,
        )

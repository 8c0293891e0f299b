"""The controller of a replica: certificates, leader election, and the webhook configurations."""

from __future__ import annotations

import base64
import logging
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from certs import CertificateError
from certs.files import PairSource, read_file
from certs.keypair import is_trusted_by, parse_certificates
from certs.secret import Timing
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from policies.reach import unlabeled_pools
from webhook.controller.cel.admission_policies import admission_policies
from webhook.controller.cel.configurations import Registration, configurations
from webhook.controller.certificates import CertificateReconciler, SecretName, names_of
from webhook.controller.leader_election import DURATION, LeaderElector
from webhook.controller.registrar import (
    KINDS,
    Owner,
    Registrar,
    configurations_of,
    is_reachable,
    other_releases,
)
from webhook.controller.trust import Bundle, Trust, ca_bundles, with_cas
from webhook.kube.client import KubeApi, ServerClock
from webhook.kube.credentials import Load
from webhook.kube.errors import ClusterError
from webhook.logs import event
from webhook.serve.metrics.replica import Metrics

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The options of the controller, as plain values.

    ``registration`` is what the configurations contain besides the policy; the controller looks up
    CAs and owner. The certificates come from ``secret``. If it is None they are files, and
    ``ca_file`` is their CA, if the configurations carry it. Without
    ``admission_policies``, the leader deletes the in-tree policies instead of writing them.
    """

    load: Load
    namespace: str
    registration: Registration
    register: bool = True
    admission_policies: bool = True
    owner: Owner | None = None
    secret: SecretName | None = None
    timing: Timing = field(default_factory=Timing)
    lease_seconds: int = DURATION
    ca_file: Path | None = None
    poll_seconds: float = 5.0


class RegistrationController:
    """The part of one replica in the release; ``elect`` and ``reconcile`` are called periodically.

    ``served`` returns PEM of the certificate that the replica serves, empty if there is none yet.
    """

    def __init__(
        self,
        options: ControllerOptions,
        policy: Callable[[], Policy],
        metrics: Metrics,
        can_serve: Callable[[], bool],
        served: Callable[[], bytes] = bytes,
        clock: ServerClock | None = None,
        nodes: Callable[[], NodeIndex | None] = lambda: None,
    ) -> None:
        self._options = options
        self._name = options.registration.name
        self._nodes = nodes
        self._policy = policy
        self._metrics = metrics
        self._can_serve = can_serve
        self._served = served
        self._api = KubeApi(options.load, clock)
        self._registrar = Registrar(self._api, metrics.registered, self._name)
        self._certificates: CertificateReconciler | None = None
        if options.secret is not None:
            self._certificates = CertificateReconciler(
                self._api,
                options.secret,
                names_of(options.registration),
                options.timing,
                configuration=self._name,
                clock=time.monotonic,
                changed=metrics.certificates_changed,
            )
        self._bundle = Bundle(
            options.timing.overlap, clock=time.monotonic, rotates=self._certificates is not None
        )
        self._trust = Trust(self._name, options.timing.settle, clock=time.monotonic)
        self._elector = LeaderElector(
            self._api,
            options.namespace,
            self._name,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            clock=time.monotonic,
            duration=options.lease_seconds,
        )
        self._was_reachable = False
        metrics.track("gpufence_leader", lambda: self._elector.leading)

    @property
    def source(self) -> PairSource | None:
        """The serving pair of the Secret; None if the pair comes from files."""
        return self._certificates.source if self._certificates else None

    @property
    def untrusted(self) -> str:
        """Why API servers may reject the served certificate; empty if they trust it."""
        return self._trust.problem

    @property
    def is_leader(self) -> bool:
        """Whether this replica does what one does for all; without an election, all replicas do."""
        return self._elector.leading or not self._options.register

    async def reconcile_certificates(self) -> None:
        """Read the Secret, and make the change that is due."""
        if self._certificates is not None:
            stored = await self._certificates.reconcile()
            self._metrics.authorities(stored)

    async def elect(self) -> bool:
        """Renew the Lease, or acquire it if it is free; release it if this replica cannot serve.

        Return whether this replica leads only now.

        Apart from ``reconcile``, whose requests take longer than the renew deadline if the API
        server is slow.
        """
        if not (self._options.register and self._can_serve()):
            await self._elector.release()
            return False
        led = self._elector.leading
        leads = await self._elector.acquire_or_renew()
        if leads != led:
            name = "leading" if leads else "no longer leading"
            event(_log, logging.INFO, name, lease=self._name)
        return leads and not led

    async def reconcile(self) -> None:
        """Do what is due: certificates, and registration if this replica leads.

        One failure stops no other.
        """
        problem: ClusterError | CertificateError | None = None
        for step in (self.reconcile_certificates, self._register, self._check_trust):
            try:
                await step()
            except (ClusterError, CertificateError) as error:
                if self._certificates is not None and self._certificates.stored is None:
                    raise
                # After a failure to read the Secret, the replica still serves what it read last,
                # and a CA that is not published yet does not sign.
                problem = problem or error
        if problem is not None:
            raise problem

    async def close(self) -> None:
        """Let another replica lead, and close the connection."""
        try:
            await self._elector.release()
        except ClusterError as error:
            event(_log, logging.WARNING, "lease not released", problem=str(error))
        await self._api.close()

    async def _register(self) -> None:
        """Write the webhook configurations and admission policies, if this replica leads."""
        if not (self._elector.leading and self._can_serve()):
            return
        if since := await self._elector.paused_since():
            self._registrar.forget()
            raise ClusterError(
                f"not registered, because gpufence unregister was run at {since}; "
                "gpufence unregister --undo reverts that"
            )
        registration = await self._registration()
        policies: tuple[JSONObject, ...] = ()
        if self._options.admission_policies:
            today = self._api.clock.now().date()
            policies = admission_policies(self._policy(), registration, today=today)
        problem: ClusterError | None = None
        try:
            await self._registrar.register_policies(policies)
        except ClusterError as error:
            # One line does not wait for the other.
            problem = error
        await self._registrar.register(await self._configurations(registration))
        self._was_reachable = True
        if problem is not None:
            raise problem

    async def _check_trust(self) -> None:
        """Check whether every caBundle trusts the served certificate, and add the CA if not.

        A replica whose CA is not in the bundle must not receive requests: the handshakes fail.
        """
        served = self._served()
        registered = await configurations_of(self._api, self._name) if served else {}
        distrusting = self._trust.check(served, registered, leads=self.is_leader)
        if not (distrusting and self._options.register and self._can_serve()):
            return
        if await self._elector.paused_since():
            return
        own = self._authorities()
        for kind, configuration in distrusting.items() if is_trusted_by(served, own) else ():
            path = f"{KINDS[kind]}/{self._name}"
            await self._api.replace(path, with_cas(configuration, own))
            event(_log, logging.INFO, "CA added", kind=kind)

    async def _registration(self) -> Registration:
        """Return the registration with what the cluster tells: the owner, and other releases."""
        options, registration = self._options, self._options.registration
        owner = await options.owner.reference(self._api) if options.owner else None
        others = await other_releases(self._api, registration.name)
        excluded = registration.excluded_namespaces | others
        return replace(
            registration,
            owner=owner,
            excluded_namespaces=excluded,
            left_out=unlabeled_pools(self._policy(), self._nodes()),
        )

    async def _configurations(self, registration: Registration) -> tuple[JSONObject, ...]:
        service = registration.service
        # Where API servers already reject what is served, there is nothing to wait for: replicas
        # are unready because of it.
        waits = service is not None and not self._was_reachable and not self._trust.is_missing
        if waits and service and not await is_reachable(self._api, service):
            raise ClusterError(
                f"not registered yet: Service {service[0]}/{service[1]} has no ready endpoint, and "
                "API servers would reject requests until it has one"
            )
        if own := self._authorities():
            registered = (await configurations_of(self._api, self._name)).values()
            own = self._bundle.publish(own, (b for each in registered for b in ca_bundles(each)))
        bundle = base64.b64encode(own).decode("ascii")
        return configurations(self._policy(), replace(registration, ca_bundle=bundle))

    def _authorities(self) -> bytes:
        if self._certificates is not None and self._certificates.stored is not None:
            return self._certificates.stored.bundle
        file = self._options.ca_file
        if file is None:
            return b""
        pem = read_file(file)
        # API servers store any caBundle, and reach no webhook with an invalid one.
        parse_certificates(pem, str(file))
        return pem

"""What the controller keeps as it should be: certificates, and what API servers know of gpufence.

Everything is compared and written in rounds, and each write is idempotent or bound to the version
that it replaces. So two controllers at a time, in the middle of an upgrade, do no harm.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from certs.secret import Timing
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.controller.certificates import (
    Certificates,
    ExternalCertificates,
    IssuedCertificates,
    SecretName,
    names_of,
)
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.owner import Owner
from webhook.controller.registrar import Registrar, configurations_of, is_reachable
from webhook.controller.text.objects import Registration, admission_policies, configurations
from webhook.controller.trust import Bundle, bundles
from webhook.kube.credentials import Load
from webhook.kube.errors import ClusterError
from webhook.kube.writer import KubeWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The options of the controller, as plain values.

    ``registration`` is what the configurations contain besides the policy; the controller looks up
    CAs and owner. Replicas mount ``serving_secret``. The controller fills it, and keeps its CA in
    ``ca_secret``; without a ``ca_secret``, another controller fills it. Without
    ``admission_policies``, the controller deletes the in-tree policies instead of writing them.
    """

    load: Load
    registration: Registration
    serving_secret: SecretName
    ca_secret: SecretName | None = None
    admission_policies: bool = True
    owner: Owner | None = None
    timing: Timing = field(default_factory=Timing)


class Controller:
    """Reconciles once for each call of ``keep_certificates`` and of ``register``."""

    def __init__(
        self,
        options: ControllerOptions,
        policy: Callable[[], Policy],
        metrics: ControllerMetrics,
    ) -> None:
        self._options = options
        self._name = options.registration.name
        self._policy = policy
        self._metrics = metrics
        self._api = KubeWriter(options.load)
        self._certificates = _certificates(options, self._api, metrics)
        self._registrar = Registrar(self._api, metrics.registered, self._name)
        self._bundle = Bundle(options.timing.overlap, clock=time.monotonic)
        self._authorities = b""

    async def keep_certificates(self) -> bool:
        """Make the change that is due; return whether API servers must trust other CAs now."""
        before, self._authorities = self._authorities, await self._certificates.reconcile()
        self._metrics.authorities(self._authorities)
        return self._authorities != before

    async def register(self) -> None:
        """Write the webhook configurations and admission policies that are not as they should be.

        Nothing is written before the first replica can answer, or before the CA is known.
        """
        if not self._authorities:
            raise ClusterError("not registered yet: the CA of the replicas is not known")
        live = (await configurations_of(self._api, self._name)).values()
        if not any(live):
            await self._wait_for_replicas()
        published = (bundle for each in live for bundle in bundles(each).values())
        bundle = self._bundle.publish(self._authorities, published)
        self._metrics.published(bundle)
        registration = await self._registration(bundle)
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
        await self._registrar.register(configurations(self._policy(), registration))
        if problem is not None:
            raise problem

    async def close(self) -> None:
        """Close the connection."""
        await self._api.close()

    async def _wait_for_replicas(self) -> None:
        service = self._options.registration.service
        if service is not None and not await is_reachable(self._api, service):
            raise ClusterError(
                f"not registered yet: Service {service[0]}/{service[1]} has no ready endpoint, and "
                "API servers would reject requests until it has one"
            )

    async def _registration(self, bundle: bytes) -> Registration:
        """Return the registration with what the cluster tells: owner and CAs."""
        owner = self._options.owner
        return replace(
            self._options.registration,
            owner=await owner.reference(self._api) if owner else None,
            ca_bundle=base64.b64encode(bundle).decode("ascii"),
        )


def _certificates(
    options: ControllerOptions, api: KubeWriter, metrics: ControllerMetrics
) -> Certificates:
    if options.ca_secret is None:
        return ExternalCertificates(api, options.serving_secret)
    return IssuedCertificates(
        api,
        options.ca_secret,
        options.serving_secret,
        names_of(options.registration),
        options.timing,
        configuration=options.registration.name,
        owner=options.owner,
        clock=time.monotonic,
        changed=metrics.issued,
    )

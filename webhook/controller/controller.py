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
    ExternalCertificates,
    IssuedCertificates,
    SecretName,
    name_of,
)
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.owner import Owner
from webhook.controller.registrar import Registrar, configurations_of, is_reachable
from webhook.controller.text.objects import Registration, admission_policies, configurations
from webhook.controller.trust import Bundle
from webhook.controller.watched import Objects
from webhook.kube.credentials import Load
from webhook.kube.errors import ClusterError
from webhook.kube.writer import KubeWriter
from webhook.registered import bundles

CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/fencepolicies-view"
"""The object of the chart that has this name in each release: Helm accepts one in a cluster."""
RELEASE = "gpufence.dev/release"
"""Its annotation with the namespace and name of the release."""


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
    """Reconciles once for each call of ``keep_certificates`` and of ``register``.

    What it reads, it watches: a round without a change sends no request.
    """

    def __init__(
        self,
        options: ControllerOptions,
        api: KubeWriter,
        objects: Objects,
        policy: Callable[[], Policy],
        metrics: ControllerMetrics,
    ) -> None:
        self._options = options
        self._name = options.registration.name
        self._policy = policy
        self._metrics = metrics
        self._api = api
        self._objects = objects
        self._certificates = self._source()
        self.registrar = Registrar(
            api, objects, metrics.registered, self._name, bindings=options.admission_policies
        )
        if options.owner is not None:
            objects.watch(options.owner.path)
        if options.registration.service is not None:
            objects.watch(CLUSTER_ROLE)
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
        live = configurations_of(self._objects, self._name).values()
        if not any(live) and not await self._is_serving():
            raise ClusterError(
                f"not registered yet: Service {self._service} has no ready endpoint, and API "
                "servers would reject requests until it has one"
            )
        published = (bundle for each in live for bundle in bundles(each).values())
        bundle = self._bundle.publish(self._authorities, published)
        self._metrics.published(bundle)
        registration = self._registration(bundle)
        policies: tuple[JSONObject, ...] = ()
        if self._options.admission_policies:
            today = self._api.clock.now().date()
            policies = admission_policies(self._policy(), registration, today=today)
        problem: ClusterError | None = None
        try:
            await self.registrar.register_policies(policies)
        except ClusterError as error:
            # One line does not wait for the other.
            problem = error
        await self.registrar.register(configurations(self._policy(), registration))
        if problem is not None:
            raise problem
        if self._objects.problem:
            raise ClusterError(f"changes are not seen: {self._objects.problem}")
        self._look_for_another_release()

    @property
    def _service(self) -> str:
        return "/".join((self._options.registration.service or ("", ""))[:2])

    async def _is_serving(self) -> bool:
        """Return whether a replica may be serving."""
        service = self._options.registration.service
        return service is None or await is_reachable(self._api, service)

    def _look_for_another_release(self) -> None:
        """Raise ClusterError if another release has been installed over this one."""
        if self._options.registration.service is None:
            return
        role = self._objects.read(CLUSTER_ROLE) or {"metadata": {}}
        release = (role["metadata"].get("annotations") or {}).get(RELEASE, self._service)
        if release != self._service:
            raise ClusterError(
                f"the cluster has another release of gpufence, {release}, and both change and deny "
                f"the same Pods: uninstall one of them, and upgrade the other (helm upgrade)"
            )

    def _registration(self, bundle: bytes) -> Registration:
        """Return the registration with what the cluster tells: owner and CAs."""
        owner = self._options.owner
        return replace(
            self._options.registration,
            owner=owner.reference(self._objects.read(owner.path)) if owner else None,
            ca_bundle=base64.b64encode(bundle).decode("ascii"),
        )

    def _source(self) -> ExternalCertificates | IssuedCertificates:
        options = self._options
        if options.ca_secret is None:
            return ExternalCertificates(self._objects, options.serving_secret)
        return IssuedCertificates(
            self._api,
            self._objects,
            options.ca_secret,
            options.serving_secret,
            name_of(options.registration),
            options.timing,
            configuration=options.registration.name,
            owner=options.owner,
            is_serving=self._is_serving,
            clock=time.monotonic,
            changed=self._metrics.issued,
        )

"""The certificates of an installation, kept in the Secrets in which replicas find them.

The API server rejects a write that is based on an older Secret, so two controllers at a time do no
harm. `certs.secret` says what is due, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, certificates_in, host_name, leaf_problem
from certs.secret import (
    CA_CERTIFICATE,
    Timing,
    authority_data,
    authority_problem,
    read_authority,
    read_certificate,
    read_leaf,
    read_signer,
    serving_data,
    serving_problem,
    with_data,
)
from policies.kubernetes.objects import JSONObject
from webhook.controller.owner import Owner
from webhook.controller.registrar import configurations_of, last_change
from webhook.controller.text.objects import LABELS, Registration
from webhook.controller.trust import carries
from webhook.controller.watched import Objects
from webhook.kube.errors import FORBIDDEN, ApiError, ClusterError
from webhook.kube.writer import KubeWriter
from webhook.logs import event
from webhook.registered import bundles

CERT_MANAGER = "cert-manager.io/certificate-name"
"""The annotation of a Secret that cert-manager writes."""

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True)
class SecretName:
    """The namespace and name of a Secret."""

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


def name_of(registration: Registration) -> str:
    """Return the name in the certificate: the one by which API servers call gpufence.

    Raises:
        CertificateError: it cannot be in a certificate.
    """
    if registration.service is not None:
        namespace, name, _ = registration.service
        return host_name(f"{name}.{namespace}.svc")
    return host_name(urlsplit(registration.url).hostname or "")


class ExternalCertificates:
    """Another controller, such as cert-manager, fills the Secret that replicas mount."""

    def __init__(self, objects: Objects, secret: SecretName) -> None:
        self._objects = objects
        self._secret = secret
        objects.watch(secret.path)

    async def reconcile(self) -> bytes:
        """Return the CAs that API servers must trust now (PEM).

        Raises:
            ClusterError: the Secret is not known.
            CertificateError: it has no CA.
        """
        authority = read_certificate(self._objects.read(self._secret.path))
        if not certificates_in(authority):
            # API servers store any caBundle, and reach no webhook with an invalid one.
            raise CertificateError(
                f"has no CA certificate in {CA_CERTIFICATE}",
                where=str(self._secret),
                cure="Have its controller write one: with cert-manager, use an issuer that is a CA",
            )
        return authority


class IssuedCertificates:
    """The built-in CA: a Secret for the CA, and one for the pair that replicas serve.

    ``configuration`` is the name of the webhook configurations, whose caBundle must carry a CA
    before it signs, unless no replica ``is_serving``. The chart creates both Secrets; ``owner``
    owns those that are created here. ``clock`` returns monotonic seconds; ``changed`` is called
    with the name of each Secret that is written.
    """

    def __init__(
        self,
        api: KubeWriter,
        objects: Objects,
        ca: SecretName,
        serving: SecretName,
        name: str,
        timing: Timing,
        *,
        configuration: str,
        owner: Owner | None,
        is_serving: Callable[[], Awaitable[bool]],
        clock: Callable[[], float],
        changed: Callable[[str], None] = lambda _secret: None,
    ) -> None:
        self._api = api
        self._objects = objects
        self._ca = ca
        self._serving = serving
        self._name = name
        self._timing = timing
        self._configuration = configuration
        self._owner = owner
        self._is_serving = is_serving
        self._clock = clock
        self._changed = changed
        self._trusted: tuple[KeyPair, float] | None = None
        """A CA that every configuration carries, and since when."""
        self._signers: set[x509.Certificate] | None = None
        """The CAs that may have signed what replicas serve. Others may write the Secret as well."""
        for secret in (ca, serving):
            objects.watch(secret.path)

    async def reconcile(self) -> bytes:
        """Renew the CA and the serving pair if that is due; return both CAs (PEM).

        Certificates are issued for API servers, and are valid by their clock. The CA of the pair
        before counts as well: some replicas serve that pair until they have loaded the new one.

        Raises:
            ClusterError: a request failed.
            CertificateError: a certificate cannot be issued.
        """
        authority = await self._authority()
        live = self._read(self._serving)
        signer = read_signer(live)
        if self._signers is None:
            self._signers = {signer} if signer else set()
        self._signers.add(authority.certificate)
        await self._sign(authority, live)
        own = authority.certificate_pem
        if signer is None or signer not in self._signers or carries(own, signer):
            return own
        return own + signer.public_bytes(Encoding.PEM)

    async def _authority(self) -> KeyPair:
        """Return the CA that is to sign, which is a new one if the one in the Secret is too old."""
        live = self._read(self._ca)
        now = self._api.clock.now()
        authority = read_authority(live)
        reason = authority_problem(authority, now)
        if authority is None or reason:
            authority = create_authority(now, self._timing.authority)
            await self._write(self._ca, authority_data(authority), live, reason)
        alone = authority.certificate.public_bytes(Encoding.PEM)
        if alone != authority.certificate_pem:
            authority = KeyPair(alone, authority.key_pem)
            reason = f"{CA_CERTIFICATE} contains more than the CA"
            await self._write(self._ca, authority_data(authority), live, reason)
        return authority

    async def _sign(self, authority: KeyPair, live: JSONObject | None) -> None:
        """Sign a new serving pair if one is due, and if callers accept it or no other is served."""
        now = self._api.clock.now()
        is_trusted = self._is_trusted(authority, now)
        reason = serving_problem(live, authority, self._name, now)
        if reason and (is_trusted or _is_useless(live, now) or not await self._is_serving()):
            leaf = issue_leaf(authority, [self._name], now, self._timing.leaf)
            await self._write(self._serving, serving_data(leaf, authority), live, reason)

    def _is_trusted(self, authority: KeyPair, now: datetime) -> bool:
        """Return whether callers have trusted the CA for long enough, or no client calls yet."""
        live = list(configurations_of(self._objects, self._configuration).values())
        carried = [bundle for each in live for bundle in bundles(each).values()]
        if not all(carries(bundle, authority.certificate) for bundle in carried):
            self._trusted = None
            return False
        if self._trusted is None or self._trusted[0] != authority:
            age = min((now - (last_change(each) or now) for each in live), default=timedelta())
            self._trusted = authority, self._clock() - max(age.total_seconds(), 0)
        waited = timedelta(seconds=self._clock() - self._trusted[1])
        return not carried or waited >= self._timing.settle

    def _read(self, secret: SecretName) -> JSONObject | None:
        live = self._objects.read(secret.path)
        if live is not None and CERT_MANAGER in (live["metadata"].get("annotations") or {}):
            raise ClusterError(
                f"cert-manager writes {secret}; choose another Secret, or let gpufence issue "
                "nothing (--no-issue)"
            )
        return live

    async def _write(
        self, secret: SecretName, data: Mapping[str, bytes], live: JSONObject | None, reason: str
    ) -> None:
        """Write the Secret. If another client wrote it in between, the next round looks again.

        Of a Secret that exists, such as the chart's, only the data changes.
        """
        made: JSONObject = {"apiVersion": "v1", "kind": "Secret"}
        if live is not None:
            live = await self._api.replace(secret.path, with_data({**live, **made}, data))
        else:
            made["metadata"] = {"name": secret.name, "labels": dict(LABELS)}
            if self._owner is not None:
                reference = self._owner.reference(self._objects.read(self._owner.path))
                made["metadata"]["ownerReferences"] = [reference]
            try:
                live = await self._api.create(secret.collection, with_data(made, data))
            except ApiError as error:
                if error.status != FORBIDDEN:
                    raise
                kubectl = f"kubectl --namespace {secret.namespace} create secret generic"
                raise ClusterError(
                    f"{secret} does not exist; restore the release (helm upgrade), or create it "
                    f"empty ({kubectl} {secret.name}): {error}"
                ) from error
        self._objects.written(secret.path, live)
        event(_log, logging.INFO, "certificate issued", secret=str(secret), reason=reason)
        self._changed(secret.name)


def _is_useless(secret: JSONObject | None, now: datetime) -> bool:
    """Return whether no caller accepts the pair in the Secret, whatever it trusts.

    Replicas may still serve the pair of a Secret that was deleted: what they have is unknown.
    """
    leaf, signer = read_leaf(secret), read_signer(secret)
    issuers = [signer.public_bytes(Encoding.PEM)] if signer else []
    return leaf is not None and bool(leaf_problem(leaf, issuers, "", now))

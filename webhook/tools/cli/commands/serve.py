"""``gpufence serve``: the admission webhook."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from certs import CertificateError
from certs.secret import Timing
from webhook.controller.cel.configurations import Registration
from webhook.controller.certificates import SecretName
from webhook.controller.controller import ControllerOptions
from webhook.controller.registrar import Owner
from webhook.kube.credentials import ACCOUNT
from webhook.kube.errors import ConfigurationError
from webhook.serve import replica
from webhook.serve.http.listener import ListenError
from webhook.tools.cli.commands.manifests import registration_options
from webhook.tools.cli.options import (
    Connection,
    is_inside,
    kubeconfig_option,
    lifetime_option,
    name_option,
    path_option,
    policy_path_option,
    secret_option,
)
from webhook.tools.documents.document import InputError

_PORT = click.IntRange(0, 65535)


def _owner(value: str) -> Owner:
    try:
        return Owner.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    epilog="""\b
Examples:
  gpufence serve --tls-cert certs/tls.crt --tls-key certs/tls.key
  gpufence serve --policy policy.yaml --host 127.0.0.1 --tls-cert tls.crt --tls-key tls.key
  gpufence serve --service gpufence-system/gpufence --owner clusterrole/gpufence
""",
)
@policy_path_option("Policy file. The default is gpufence's default policy.")
@path_option(
    "--tls-cert",
    "Serving certificate (PEM). gpufence reloads it when it changes. By default, gpufence manages "
    "a CA and a certificate in a Secret.",
)
@path_option("--tls-key", "Private key of the serving certificate (PEM, not encrypted).")
@path_option(
    "--client-ca-file",
    "CA file (PEM). gpufence then accepts reviews only from clients with a certificate of "
    "this CA, and API servers must be configured to present one. gpufence reloads the file when it "
    "changes.",
)
@click.option(
    "--host",
    default="0.0.0.0",  # noqa: S104 - a Pod is reached on its own address
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=_PORT,
    default=9443,
    show_default=True,
    help="Port for reviews (/mutate and /validate), over TLS.",
)
@click.option(
    "--metrics-port",
    type=_PORT,
    default=8080,
    show_default=True,
    help="Port for /healthz, /readyz and /metrics, without TLS.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Time after SIGTERM in which gpufence is not ready but still serves requests. Then it "
    "completes those in flight.",
)
@registration_options
@click.option(
    "--register",
    type=click.BOOL,
    default=None,
    metavar="true|false",
    help="Write the webhook configurations. The default is true inside a cluster. With false, "
    "apply the output of gpufence manifests.",
)
@click.option(
    "--admission-policies/--no-admission-policies",
    default=True,
    help="Also write ValidatingAdmissionPolicies, which the API server evaluates itself. "
    "With --no-admission-policies, existing ones are deleted.",
)
@kubeconfig_option
@name_option(
    "--namespace",
    text="Namespace of Lease and Secret. The default is the service account's namespace.",
)
@click.option(
    "--owner",
    type=_owner,
    metavar="KIND/NAME",
    help="Cluster-scoped object of the release that owns the configurations, for example "
    "clusterrole/gpufence. They are deleted with it.",
)
@secret_option("Secret with the CA and the certificate. Not used with --tls-cert.")
@path_option(
    "--ca-file",
    "CA of --tls-cert (PEM), for the configurations. Without it, another controller writes "
    "the CA, for example cert-manager's injector.",
)
@lifetime_option(
    "--certificate-lifetime", "8760h", "Lifetime of the certificate; renewed after 2/3."
)
@lifetime_option("--ca-lifetime", "87600h", "Lifetime of the CA; replaced after 2/3.")
def serve(
    registration: Registration,
    policy_path: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca_file: Path | None,
    host: str,
    port: int,
    metrics_port: int,
    drain_seconds: float,
    kubeconfig: Path | None,
    **registering: Any,
) -> int:
    """Run the admission webhook.

    gpufence answers AdmissionReview v1 at /mutate and /validate until SIGTERM, and then drains.
    With port 0 it chooses a free port and logs it in the event "ready". It reloads the policy and
    the certificate when their files change.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other.")
    to_cluster = Connection(kubeconfig).load()
    try:
        controller = _controller(
            registration, to_cluster, files=tls_cert is not None, **registering
        )
        has_cluster = controller is not None or kubeconfig is not None or is_inside()
        options = replica.ServeOptions(
            policy=policy_path,
            tls_cert=tls_cert,
            tls_key=tls_key,
            client_ca_file=client_ca_file,
            controller=controller,
            facts=to_cluster if has_cluster and registration.with_nodes else None,
            timeout_seconds=registration.timeout_seconds,
            host=host,
            port=port,
            metrics_port=metrics_port,
            drain_seconds=drain_seconds,
        )
        return replica.serve(options)
    except (CertificateError, ConfigurationError, ListenError) as error:
        raise InputError([str(error)]) from error


def _controller(
    registration: Registration,
    load: Any,
    *,
    files: bool,
    register: bool | None,
    admission_policies: bool,
    namespace: str | None,
    owner: Owner | None,
    secret: str,
    ca_file: Path | None,
    certificate_lifetime: timedelta,
    ca_lifetime: timedelta,
) -> ControllerOptions | None:
    """Return what the replica writes to its cluster; None if it writes nothing."""
    register = is_inside() if register is None else register
    if files and not register:
        return None
    if not registration.is_addressed:
        raise click.UsageError(
            "Specify how API servers reach gpufence: --service NAMESPACE/NAME or --url URL. To "
            "serve without a cluster, use --tls-cert, --tls-key and --register=false."
        )
    namespace = namespace or _own_namespace(registration)
    return ControllerOptions(
        load=load,
        namespace=namespace,
        registration=registration,
        register=register,
        admission_policies=admission_policies,
        owner=owner,
        secret=None if files else SecretName(namespace, secret),
        timing=Timing(authority=ca_lifetime, leaf=certificate_lifetime),
        ca_file=ca_file,
    )


def _own_namespace(registration: Registration) -> str:
    try:
        return (ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return registration.service[0] if registration.service else "gpufence-system"

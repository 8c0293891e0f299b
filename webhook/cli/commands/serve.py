"""``gpufence serve``: the admission webhook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from webhook.cli.options.common import policy_file_option
from webhook.cli.options.serve_cluster import cluster_options
from webhook.documents.errors import InputError

if TYPE_CHECKING:
    from webhook.kube.credentials import Load
    from webhook.registration.controller import ControllerOptions

_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(min=0)


@click.command(
    epilog="""\b
Examples:
  gpufence serve --tls-cert certs/tls.crt --tls-key certs/tls.key
  gpufence serve --policy policy.yaml --host 127.0.0.1 --tls-cert tls.crt --tls-key tls.key
  gpufence serve --service gpufence-system/gpufence --owner clusterrole/gpufence
""",
)
@policy_file_option
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serving certificate (PEM). gpufence reloads it when it changes. By default, gpufence "
    "manages a CA and a certificate in a Secret.",
)
@click.option(
    "--tls-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Private key of the serving certificate (PEM, not encrypted).",
)
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="CA file (PEM). gpufence then accepts reviews only from clients with a certificate of "
    "this CA, and API servers must be configured to present one. gpufence reloads the file when it "
    "changes.",
)
@click.option(
    "--host",
    default="0.0.0.0",  # noqa: S104 - a Pod is reached on its own address
    show_default=True,
    metavar="ADDRESS",
    help="Address for reviews (/mutate and /validate), over TLS.",
)
@click.option("--port", type=_PORT, default=9443, show_default=True, help="Port for reviews.")
@click.option(
    "--metrics-host",
    default="0.0.0.0",  # noqa: S104 - the kubelet probes it there
    show_default=True,
    metavar="ADDRESS",
    help="Address for /healthz, /readyz and /metrics, without TLS.",
)
@click.option(
    "--metrics-port", type=_PORT, default=8080, show_default=True, help="Port for metrics."
)
@click.option(
    "--drain-seconds",
    type=_SECONDS,
    default=5.0,
    show_default=True,
    help="Time after SIGTERM in which gpufence is not ready but still serves requests.",
)
@click.option(
    "--grace-seconds",
    type=_SECONDS,
    default=10.0,
    show_default=True,
    help="Time after that in which gpufence completes requests in flight.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="Log format, on standard error.",
)
@cluster_options
def serve(
    policy_path: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca_file: Path | None,
    controller: ControllerOptions | None,
    facts: Load | None,
    devices: Load | None,
    timeout_seconds: int,
    host: str,
    port: int,
    metrics_host: str,
    metrics_port: int,
    drain_seconds: float,
    grace_seconds: float,
    log_format: Literal["json", "text"],
) -> int:
    """Run the admission webhook.

    gpufence answers AdmissionReview v1 at /mutate and /validate until SIGTERM, and then drains.
    With port 0 it chooses a free port and logs it in the event "ready". It reloads the policy and
    the certificate when their files change.
    """
    from certs.errors import CertificateError
    from webhook.http.listener import ListenError
    from webhook.kube.errors import ConfigurationError
    from webhook.server.replica import ServeOptions
    from webhook.server.replica import serve as run

    options = ServeOptions(
        policy=policy_path,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca_file=client_ca_file,
        controller=controller,
        facts=facts,
        devices=devices,
        timeout_seconds=timeout_seconds,
        host=host,
        port=port,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        drain_seconds=drain_seconds,
        grace_seconds=grace_seconds,
        log_format=log_format,
    )
    try:
        return run(options)
    except (CertificateError, ConfigurationError, ListenError) as error:
        raise InputError([str(error)]) from error

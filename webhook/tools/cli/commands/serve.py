"""``gpufence serve``: the admission webhook."""

from __future__ import annotations

from pathlib import Path

import click

from certs import CertificateError
from webhook.documents.document import InputError
from webhook.kube.credentials import Load, in_cluster, is_inside
from webhook.kube.errors import ConfigurationError
from webhook.serve import replica
from webhook.serve.http.listener import ListenError
from webhook.tools.cli.flags import (
    PORT,
    configuration_name_option,
    follow_option,
    host_option,
    kubeconfig_option,
    log_level_option,
    metrics_port_option,
    node_facts_option,
    path_option,
    policy_path_option,
    timeout_option,
)


@click.command(
    epilog="""\b
Examples:
  gpufence serve --tls-cert certs/tls.crt --tls-key certs/tls.key
  gpufence serve --policy policy.yaml --host 127.0.0.1 --tls-cert tls.crt --tls-key tls.key
""",
)
@policy_path_option(
    "Policy file, which is read once. The default is the FencePolicy of the cluster, or outside of "
    "a cluster gpufence's default policy."
)
@follow_option
@path_option(
    "--tls-cert",
    "Serving certificate (PEM). gpufence reloads it when it changes.",
    required=True,
)
@path_option(
    "--tls-key", "Private key of the serving certificate (PEM, not encrypted).", required=True
)
@path_option(
    "--client-ca-file",
    "CA file (PEM). gpufence then accepts reviews only from clients with a certificate of "
    "this CA, and API servers must be configured to present one. gpufence reloads the file when it "
    "changes.",
)
@host_option
@click.option(
    "--port",
    type=PORT,
    default=9443,
    show_default=True,
    help="Port for reviews (/mutate and /validate), over TLS.",
)
@metrics_port_option
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Time after SIGTERM in which gpufence is not ready but still serves requests. Then it "
    "completes those in flight.",
)
@log_level_option
@timeout_option
@node_facts_option
@configuration_name_option
@kubeconfig_option
def serve(
    policy_path: str | None,
    fence_policy: str,
    tls_cert: Path,
    tls_key: Path,
    client_ca_file: Path | None,
    host: str,
    port: int,
    metrics_port: int,
    drain_seconds: float,
    log_level: str,
    timeout_seconds: int,
    with_nodes: bool,
    configuration_name: str,
    kubeconfig: Path | None,
) -> int:
    """Run the admission webhook.

    gpufence answers AdmissionReview v1 at /mutate and /validate until SIGTERM, and then drains. It
    writes nothing. With port 0 it chooses a free port and logs it in the event "ready". It follows
    the FencePolicy of its cluster, and reloads the certificate when its files change.
    """
    cluster = _access(kubeconfig)
    name, policy = fence_policy, None
    if cluster is None or policy_path is not None:
        from webhook.documents.policy_files import load_policy, policy_name

        name, policy = policy_name(policy_path), load_policy(policy_path)
    options = replica.ServeOptions(
        policy_name=name,
        policy=policy,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca_file=client_ca_file,
        cluster=cluster,
        with_facts=with_nodes,
        name=configuration_name,
        timeout_seconds=timeout_seconds,
        host=host,
        port=port,
        metrics_port=metrics_port,
        drain_seconds=drain_seconds,
        log_level=log_level,
    )
    try:
        return replica.serve(options)
    except (CertificateError, ConfigurationError, ListenError) as error:
        raise InputError([str(error)]) from error


def _access(path: Path | None) -> Load | None:
    """Return the access to the cluster of a kubeconfig or of this Pod; None without a cluster."""
    if path is None:
        return in_cluster() if is_inside() else None
    from webhook.kube.kubeconfig import kubeconfig

    return kubeconfig(path)

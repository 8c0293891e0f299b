"""``gpufence controller``: keeps certificates, webhook configurations and admission policies."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from certs import CertificateError
from certs.secret import Timing
from webhook.controller import process
from webhook.controller.certificates import SecretName
from webhook.controller.controller import ControllerOptions
from webhook.controller.owner import Owner
from webhook.controller.text.objects import Registration
from webhook.documents.document import InputError
from webhook.documents.policy_files import load_policy, policy_name
from webhook.kube.credentials import ACCOUNT
from webhook.kube.errors import ConfigurationError
from webhook.kube.kubeconfig import access
from webhook.tools.cli.flags import (
    ca_secret_option,
    follow_option,
    host_option,
    kubeconfig_option,
    lifetime_option,
    log_level_option,
    metrics_port_option,
    name_option,
    policy_path_option,
    serving_secret_option,
)
from webhook.tools.cli.registration import registration_options


def _owner(value: str) -> Owner:
    try:
        return Owner.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    epilog="""\b
One controller is enough: replicas answer reviews without it. While it does not run, certificates
are not renewed, and changes by others are not repaired.

\b
Examples:
  gpufence controller --service gpufence-system/gpufence --owner clusterrole/gpufence
  gpufence controller --url https://gpufence.example:9443 --no-issue --kubeconfig admin.conf
""",
)
@policy_path_option("Policy file, which is read once. The default is the FencePolicy.")
@follow_option
@registration_options
@click.option(
    "--admission-policies/--no-admission-policies",
    default=True,
    help="Also write ValidatingAdmissionPolicies, which the API server evaluates itself. "
    "With --no-admission-policies, existing ones are deleted.",
)
@kubeconfig_option
@name_option(
    "--namespace",
    text="Namespace of both Secrets. The default is the service account's namespace.",
)
@click.option(
    "--owner",
    type=_owner,
    metavar="KIND/NAME",
    help="Cluster-scoped object of the release that owns what the controller writes, for example "
    "clusterrole/gpufence. It is deleted with it.",
)
@click.option(
    "--issue/--no-issue",
    default=True,
    help="Be the CA of the serving certificate. With --no-issue, another controller fills the "
    "Secret of --serving-secret, including ca.crt.",
)
@ca_secret_option
@serving_secret_option
@lifetime_option(
    "--certificate-lifetime", "8760h", "Lifetime of the certificate; renewed after 2/3."
)
@lifetime_option("--ca-lifetime", "87600h", "Lifetime of the CA; replaced after 2/3.")
@host_option
@log_level_option
@metrics_port_option
def controller(
    registration: Registration,
    policy_path: str | None,
    admission_policies: bool,
    kubeconfig: Path | None,
    namespace: str | None,
    owner: Owner | None,
    issue: bool,
    ca_secret: str,
    serving_secret: str,
    certificate_lifetime: timedelta,
    ca_lifetime: timedelta,
    host: str,
    log_level: str,
    metrics_port: int,
) -> int:
    """Keep certificates, webhook configurations and admission policies.

    The controller writes what is missing or differs, as soon as it does, until SIGTERM. It
    registers the webhooks once a replica can answer. With port 0 it chooses a free port and logs it
    in the event "running".
    """
    if not registration.is_addressed:
        raise click.UsageError(
            "Specify how API servers reach gpufence: --service NAMESPACE/NAME or --url URL."
        )
    namespace = namespace or _own_namespace(registration)
    registration = following(registration, policy_path)
    options = ControllerOptions(
        load=access(kubeconfig),
        registration=registration,
        serving_secret=SecretName(namespace, serving_secret),
        ca_secret=SecretName(namespace, ca_secret) if issue else None,
        admission_policies=admission_policies,
        owner=owner,
        timing=Timing(authority=ca_lifetime, leaf=certificate_lifetime),
    )
    try:
        return process.run(
            process.ProcessOptions(
                controller=options,
                policy_name=registration.fence_policy or policy_name(policy_path),
                policy=load_policy(policy_path) if policy_path else None,
                host=host,
                metrics_port=metrics_port,
                log_level=log_level,
            )
        )
    except (CertificateError, ConfigurationError) as error:
        raise InputError([str(error)]) from error
    except OSError as error:
        problem = f"cannot listen on {host}:{metrics_port} ({error.strerror})"
        cure = "Choose another --metrics-port, or 0 for a free port"
        raise InputError([f"{problem}. {cure}."]) from error


def following(registration: Registration, policy_path: str | None) -> Registration:
    """Return the registration, which names no FencePolicy where the policy is a file."""
    return replace(registration, fence_policy="") if policy_path else registration


def _own_namespace(registration: Registration) -> str:
    try:
        return (ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return registration.service[0] if registration.service else "gpufence-system"

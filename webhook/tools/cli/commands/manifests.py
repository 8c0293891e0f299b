"""``gpufence manifests``: what gpufence registers with API servers, as YAML for Git."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from certs import CertificateError, read_file
from certs.keypair import parse_certificates
from webhook.controller.text.objects import Registration, configurations
from webhook.controller.text.objects import admission_policies as policies_of
from webhook.documents.document import InputError
from webhook.tools.cli.flags import name_option, namespaced_name_option, path_option
from webhook.tools.cli.options import PolicyChoice, policy_option
from webhook.tools.cli.registration import registration_options
from webhook.tools.cli.yaml_writer import to_yaml

INJECT = "cert-manager.io/inject-ca-from"
"""cert-manager's injector writes the CA of the Certificate that this annotation names."""


@click.command(
    epilog="""\b
The objects depend on the policy: print them again when it changes. Do not run gpufence controller,
which would write them itself.

\b
Examples:
  gpufence manifests --service gpufence-system/gpufence --ca-file ca.crt | kubectl apply -f -
  gpufence manifests --policy policy.yaml --service gpufence-system/gpufence \\
    --cert-manager gpufence-system/gpufence > configurations.yaml
  gpufence manifests --admission-policies --exclude-namespace gpufence-system | kubectl apply -f -
  gpufence manifests --admission-policies --static > /etc/kubernetes/admission/gpufence.yaml
""",
)
@policy_option
@name_option(
    "--fence-policy",
    text="Name of the FencePolicy that replicas follow. The webhook configurations name it, for "
    "commands that read the cluster. By default, they name none.",
)
@path_option("--ca-file", "CA of the serving certificate (PEM), for caBundle.")
@namespaced_name_option(
    "--cert-manager",
    "NAMESPACE/CERTIFICATE",
    "Certificate of cert-manager whose CA the injector writes.",
)
@click.option(
    "--admission-policies",
    is_flag=True,
    help="Print the admission policies and their bindings instead of the webhook "
    "configurations. API servers evaluate them without a replica.",
)
@click.option(
    "--static",
    is_flag=True,
    help="With --admission-policies: in the form that an API server reads from its "
    "staticManifestsDir (beta in Kubernetes 1.37).",
)
@registration_options
def manifests(
    policy_choice: PolicyChoice,
    ca_file: Path | None,
    cert_manager: tuple[str, str] | None,
    admission_policies: bool,
    static: bool,
    registration: Registration,
) -> None:
    """Print the webhook configurations, or the admission policies, of a policy.

    Webhook configurations need an address (--service or --url) and a CA (--ca-file or
    --cert-manager).
    """
    if static and not admission_policies:
        raise click.UsageError("--static needs --admission-policies.")
    if not admission_policies:
        registration = _with_ca(registration, ca_file, cert_manager)
    policy = policy_choice.load()
    objects = (
        policies_of(policy, registration, today=datetime.now(UTC).date(), static=static)
        if admission_policies
        else configurations(policy, registration)
    )
    click.echo("---\n".join(map(to_yaml, objects)), nl=False)


def _with_ca(
    registration: Registration, ca_file: Path | None, cert_manager: tuple[str, str] | None
) -> Registration:
    if not registration.is_addressed:
        raise click.UsageError(
            "Specify how API servers reach gpufence: --service NAMESPACE/NAME or --url URL."
        )
    if ca_file is not None and cert_manager is None:
        try:
            pem = read_file(ca_file)
            parse_certificates(pem, str(ca_file))
        except CertificateError as error:
            raise InputError([str(error)]) from error
        return replace(registration, ca_bundle=base64.b64encode(pem).decode("ascii"))
    if ca_file is None and cert_manager is not None:
        annotations = {**registration.annotations, INJECT: "/".join(cert_manager)}
        return replace(registration, annotations=annotations)
    raise click.UsageError(
        "Specify the CA with either --ca-file FILE or --cert-manager NAMESPACE/CERTIFICATE."
    )

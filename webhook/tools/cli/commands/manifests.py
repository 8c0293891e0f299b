"""``gpufence manifests``: what gpufence registers with API servers, as YAML for Git.

The options of the webhook configurations are those of ``gpufence controller`` as well.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from certs import CertificateError, read_file
from certs.keypair import parse_certificates
from policies.kubernetes.quantity import is_subdomain
from webhook.controller.text.objects import Registration, configurations
from webhook.controller.text.objects import admission_policies as policies_of
from webhook.documents.document import InputError
from webhook.tools.cli.options import (
    PolicyChoice,
    as_argument,
    configuration_name_option,
    name_option,
    namespaced_name_option,
    node_facts_option,
    path_option,
    policy_option,
    timeout_option,
)
from webhook.tools.cli.yaml_writer import to_yaml

INJECT = "cert-manager.io/inject-ca-from"
"""cert-manager's injector writes the CA of the Certificate that this annotation names."""


def _service(value: str) -> tuple[str, str, int]:
    namespace, _, rest = value.partition("/")
    name, _, port = rest.partition(":")
    port = port or "443"
    is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
    if not (is_subdomain(namespace) and is_subdomain(name) and is_port):
        raise click.BadParameter(
            f"{value!r} is not a Service. Write NAMESPACE/NAME or NAMESPACE/NAME:PORT."
        )
    return namespace, name, int(port)


def _pair(value: str) -> tuple[str, str]:
    key, equals, text = value.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{value!r} is not a pair. Write KEY=VALUE.")
    return key, text


def _url(value: str) -> str:
    if not value:
        return value
    if not value.startswith("https://"):
        raise click.BadParameter(f"{value!r} must begin with https://: API servers require it.")
    try:
        parts = urlsplit(value)
        is_valid = bool(parts.hostname) and parts.port != 0 and not set(value) & set("?#@ ")
    except ValueError:
        is_valid = False
    if not is_valid:
        raise click.BadParameter(
            f"{value!r} is not the address of a webhook. Write https://HOST:PORT, without user, "
            "query and fragment, which API servers reject."
        )
    return value.rstrip("/")


def make_registration(
    configuration_name: str,
    service: tuple[str, str, int] | None,
    url: str,
    timeout_seconds: int,
    annotations: tuple[tuple[str, str], ...],
    excluded: tuple[str, ...],
    with_nodes: bool,
    fence_policy: str | None,
    **_others: Any,
) -> Registration:
    """Return the registration for the options of a command, ``registration_options`` among them."""
    if service and url:
        raise click.UsageError("--service and --url exclude each other.")
    own = {service[0]} if service else set()
    return Registration(
        name=configuration_name,
        service=service,
        url=url,
        timeout_seconds=timeout_seconds,
        annotations=dict(annotations),
        excluded_namespaces=frozenset({*own, *excluded}),
        with_nodes=with_nodes,
        fence_policy=fence_policy or "",
    )


registration_options = as_argument(
    "registration",
    make_registration,
    configuration_name_option,
    click.option(
        "--service",
        type=_service,
        metavar="NAMESPACE/NAME[:PORT]",
        help="Service of gpufence. The default port is 443.",
    ),
    click.option(
        "--url",
        default="",
        type=_url,
        metavar="URL",
        help="Address of gpufence without a Service: https://HOST:PORT.",
    ),
    timeout_option,
    click.option(
        "--annotation",
        "annotations",
        type=_pair,
        multiple=True,
        metavar="KEY=VALUE",
        help="Annotation of both configurations, for example admissions.enforcer/disabled=true on "
        "AKS. Repeatable.",
    ),
    name_option(
        "--exclude-namespace",
        "excluded",
        multiple=True,
        text="Namespace for which API servers do not call gpufence, in addition to kube-system, "
        "the namespaces of common CNI agents, exempt namespaces of the policy, and gpufence's "
        "own. Repeatable.",
    ),
    node_facts_option,
)
"""The options of the webhook configurations, and --fence-policy, as one argument."""


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
    """Print the webhook configurations, or the admission policies, of a policy."""
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
        return replace(registration, ca_bundle=_bundle(ca_file))
    if ca_file is None and cert_manager is not None:
        annotations = {**registration.annotations, INJECT: "/".join(cert_manager)}
        return replace(registration, annotations=annotations)
    raise click.UsageError(
        "Specify the CA with either --ca-file FILE or --cert-manager NAMESPACE/CERTIFICATE."
    )


def _bundle(path: Path) -> str:
    try:
        pem = read_file(path)
        parse_certificates(pem, str(path))
    except CertificateError as error:
        raise InputError([str(error)]) from error
    return base64.b64encode(pem).decode("ascii")

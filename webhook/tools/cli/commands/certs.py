"""``gpufence certs``: certificates as files, and those that replicas manage in their Secret."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from certs import CertificateError
from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME, create_authority
from certs.files import issue as issue_files
from certs.keypair import (
    is_certificate,
    is_overdue,
    leaf_problem,
    names_of,
    parse_certificates,
    renewal_due,
)
from certs.secret import Stored, read_secret, write_secret
from policies.kubernetes.objects import JSONObject
from webhook.controller.registrar import KINDS
from webhook.controller.trust import ca_bundles
from webhook.kube.client import KubeApi
from webhook.tools.cli.commands import EXIT_FOUND, SuggestingGroup
from webhook.tools.cli.options import (
    Connection,
    connection_options,
    lifetime_option,
    release_name_option,
    release_namespace_option,
    secret_option,
)
from webhook.tools.documents.document import InputError

_secret_option = secret_option("Secret with the CA and the serving certificate.")


@click.group(cls=SuggestingGroup)
def certs() -> None:
    """Issue certificates as files, or show and rotate those that gpufence manages."""


@certs.command(
    epilog="""\b
Exit status:
  0  every webhook configuration trusts the certificate, and no renewal is overdue
  1  a problem, which the output names
  2  the cluster is not reachable

\b
Examples:
  gpufence certs status
  gpufence certs status --kubeconfig admin.conf || echo "check the certificates"
""",
)
@connection_options
@release_namespace_option
@_secret_option
@release_name_option("Name of both webhook configurations.")
def status(connection: Connection, namespace: str, secret: str, name: str) -> int:
    """Show the certificates that running replicas manage in their Secret."""
    well = connection.run(lambda api: shown(api, namespace, secret, name))
    return 0 if well else EXIT_FOUND


@certs.command(
    epilog="""\b
The command publishes the next CA together with the current one. Running replicas do the rest: once
every webhook configuration trusts both, the next CA signs, and later the old one is removed. To see
the progress, run gpufence certs status.

\b
Examples:
  gpufence certs rotate
  gpufence certs rotate --ca-lifetime 8760h && gpufence certs status
""",
)
@connection_options
@release_namespace_option
@_secret_option
@lifetime_option("--ca-lifetime", "87600h", "Lifetime of the next CA.")
def rotate(connection: Connection, namespace: str, secret: str, ca_lifetime: timedelta) -> None:
    """Rotate the CA early."""
    connection.run(lambda api: publish_next(api, namespace, secret, ca_lifetime))
    click.echo(
        f"Secret {namespace}/{secret}: the next CA is published. Running replicas complete the "
        "rotation."
    )


@certs.command(
    epilog="""\b
Writes four files. Only their owner can read the keys:
  ca.crt, ca.key    the CA; base64 -w0 ca.crt prints the caBundle of the configurations
  tls.crt, tls.key  the serving certificate, for gpufence serve --tls-cert and --tls-key

\b
Examples:
  gpufence certs issue --dns-name gpufence.gpufence-system.svc --out certs/
  gpufence certs issue --dns-name localhost --ip 127.0.0.1 --out certs/ --force
""",
)
@click.option(
    "--dns-name",
    "dns_names",
    multiple=True,
    metavar="NAME",
    help="DNS name of the webhook for API servers (SERVICE.NAMESPACE.svc). Repeatable.",
)
@click.option(
    "--ip",
    "ip_addresses",
    multiple=True,
    metavar="ADDRESS",
    help="IP address of the webhook for API servers. Repeatable.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Output directory. gpufence creates it if it does not exist.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1),
    default=LEAF_LIFETIME.days,
    show_default=True,
    help="Lifetime of the serving certificate.",
)
@click.option(
    "--ca-days",
    type=click.IntRange(min=1),
    default=AUTHORITY_LIFETIME.days,
    show_default=True,
    help="Lifetime of the CA.",
)
@click.option("--force", is_flag=True, help="Replace the CA and the certificate in the directory.")
def issue(
    dns_names: tuple[str, ...],
    ip_addresses: tuple[str, ...],
    out: Path,
    days: int,
    ca_days: int,
    force: bool,
) -> None:
    """Create a CA, and a serving certificate that it signs."""
    lifetimes = timedelta(days=ca_days), timedelta(days=days)
    now = datetime.now(UTC)
    try:
        pairs = issue_files(dns_names, ip_addresses, out, now, *lifetimes, force=force)
    except CertificateError as error:
        raise InputError([str(error)]) from error
    ca, leaf = (pair.certificate for pair in pairs)
    click.echo(
        f"Wrote ca.crt, ca.key, tls.crt and tls.key to {out}, for {names_of(leaf)}; "
        f"the CA expires on {ca.not_valid_after_utc:%Y-%m-%d}, "
        f"the certificate on {leaf.not_valid_after_utc:%Y-%m-%d}."
    )


async def publish_next(api: KubeApi, namespace: str, secret: str, lifetime: timedelta) -> None:
    """Write the next CA into the Secret. It is valid by the API server's clock, as all are.

    Raises:
        InputError: there is no Secret, or a rotation is in progress.
        ClusterError: the request failed, for example because a replica renews the certificate.
    """
    live, stored = await _read(api, namespace, secret)
    if stored.next is not None or stored.old:
        raise InputError(
            ["A rotation is in progress. To see when it completes, run gpufence certs status."]
        )
    after = replace(stored, next=create_authority(api.clock.now(), lifetime))
    path = f"/api/v1/namespaces/{namespace}/secrets/{secret}"
    await api.replace(path, write_secret(after, secret, namespace, live))


async def shown(api: KubeApi, namespace: str, secret: str, name: str) -> bool:
    """Print the certificates and who trusts them; return whether there is no problem."""
    _, stored = await _read(api, namespace, secret)
    well = _show(stored, api.clock.now())
    return await _show_configurations(api, name, stored) and well


async def _read(api: KubeApi, namespace: str, secret: str) -> tuple[JSONObject, Stored]:
    live = await api.read(f"/api/v1/namespaces/{namespace}/secrets/{secret}")
    stored = read_secret(live) if live is not None else None
    if live is None or stored is None:
        state = "does not exist" if live is None else "holds no certificates"
        cure = "Running replicas create it, unless they serve with --tls-cert"
        raise InputError([f"Secret {namespace}/{secret} {state}. {cure}."])
    return live, stored


def _show(stored: Stored, now: datetime) -> bool:
    """Print each certificate with its lifetime; return whether there is no problem."""
    parts = {
        "certificate": stored.leaf.certificate_pem,
        "CA": stored.authority.certificate_pem,
        "next CA": stored.next_certificate,
        "old CA": stored.old,
    }
    well = True
    for part, pem in parts.items():
        if not is_certificate(pem):
            # API servers do not trust a CA that is missing or damaged, which is reported below.
            continue
        certificate = parse_certificates(pem, part)[0]
        end, due = certificate.not_valid_after_utc, renewal_due(certificate)
        late = "" if part == "old CA" or now < due else ", overdue"
        expired = " EXPIRED" if now > end else ""
        click.echo(
            f"{part}: {certificate.serial_number:x}, valid until {end.isoformat()}{expired}, "
            f"renewal at {due.isoformat()}{late}"
        )
        well = well and (part == "old CA" or not is_overdue(certificate, now))
    if problem := leaf_problem(stored.leaf, stored.authorities, None, now):
        click.echo(f"problem: {problem}")
    return well and not problem


async def _show_configurations(api: KubeApi, name: str, stored: Stored) -> bool:
    """Print whether each webhook trusts all CAs; return whether all do."""
    count = len(stored.authorities)
    what = "the CA" if count < 2 else f"all {count} CAs"
    well = True
    for kind, path in KINDS.items():
        configuration = await api.read(f"{path}/{name}")
        if configuration is None:
            click.echo(f"{kind} {name}: does not exist")
            well = False
            continue
        webhooks = configuration.get("webhooks") or ()
        for webhook, bundle in zip(webhooks, ca_bundles(configuration), strict=True):
            carries = stored.is_carried_by(bundle)
            words = "trusts" if carries else "DOES NOT TRUST"
            click.echo(f"{kind} {name}, {webhook.get('name')}: {words} {what}")
            well = well and carries
    return well

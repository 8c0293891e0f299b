"""``gpufence certs``: certificates as files, and those that replicas of a release serve."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from cryptography import x509

from certs import CertificateError
from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME
from certs.files import issue as issue_files
from certs.keypair import (
    KeyPair,
    is_certificate,
    is_overdue,
    leaf_problem,
    names_of,
    parse_certificates,
    renewal_due,
)
from certs.secret import read_authority, read_certificate, read_leaf
from webhook.controller.certificates import SecretName
from webhook.controller.registrar import KINDS
from webhook.controller.trust import bundles
from webhook.documents.document import InputError
from webhook.kube.writer import KubeWriter
from webhook.tools.cli.commands import EXIT_FOUND, SuggestingGroup
from webhook.tools.cli.flags import (
    ca_secret_option,
    release_name_option,
    release_namespace_option,
    serving_secret_option,
)
from webhook.tools.cli.options import Connection, connection_options


@click.group(cls=SuggestingGroup)
def certs() -> None:
    """Issue certificates as files, or show those that replicas serve."""


@certs.command(
    epilog="""\b
To replace the CA early, empty its Secret. The controller creates another one, and lets it sign once
every webhook configuration trusts it:
  kubectl -n gpufence-system patch secret gpufence-ca --type merge --patch '{"data": null}'

\b
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
@serving_secret_option
@ca_secret_option
@release_name_option("Name of both webhook configurations.")
def status(
    connection: Connection, namespace: str, serving_secret: str, ca_secret: str, name: str
) -> int:
    """Show the certificate that replicas serve, its CA, and who trusts it."""
    serving, ca = SecretName(namespace, serving_secret), SecretName(namespace, ca_secret)
    well = connection.run(lambda api: shown(api, serving, ca, name))
    return 0 if well else EXIT_FOUND


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


async def shown(api: KubeWriter, serving: SecretName, ca: SecretName, name: str) -> bool:
    """Print the certificates and who trusts them; return whether there is no problem.

    Raises:
        InputError: there is no serving certificate.
        ClusterError: a request failed.
    """
    secret = await api.read(serving.path)
    leaf, signer = read_leaf(secret), read_certificate(secret)
    if leaf is None:
        state = "does not exist" if secret is None else "holds no serving certificate"
        raise InputError([f"{serving} {state}. Check that the controller runs: it writes it."])
    now = api.clock.now()
    parts = {"certificate": leaf.certificate_pem, "CA": signer}
    authority = read_authority(await api.read(ca.path))
    if authority is not None and authority.certificate_pem not in signer:
        parts["next CA"] = authority.certificate_pem
    # API servers do not trust a CA that is missing or damaged, which is reported below.
    known = {part: pem for part, pem in parts.items() if is_certificate(pem)}
    on_time = [_show(part, parse_certificates(pem, part)[0], now) for part, pem in known.items()]
    well = all(on_time)
    trusted = [signer] if is_certificate(signer) else []
    if problem := leaf_problem(leaf, trusted, None, now):
        click.echo(f"problem: {problem}")
        well = False
    return await _show_configurations(api, name, leaf) and well


def _show(part: str, certificate: x509.Certificate, now: datetime) -> bool:
    """Print a certificate with its lifetime; return whether its renewal is not overdue."""
    end, due = certificate.not_valid_after_utc, renewal_due(certificate)
    late = "" if now < due else ", overdue"
    expired = " EXPIRED" if now > end else ""
    click.echo(
        f"{part}: {certificate.serial_number:x}, valid until {end.isoformat()}{expired}, "
        f"renewal at {due.isoformat()}{late}"
    )
    return not is_overdue(certificate, now)


async def _show_configurations(api: KubeWriter, name: str, served: KeyPair) -> bool:
    """Print whether each webhook trusts the served certificate; return whether all do."""
    well = True
    for kind, path in KINDS.items():
        configuration = await api.read(f"{path}/{name}")
        if configuration is None:
            click.echo(f"{kind} {name}: does not exist")
            well = False
            continue
        for webhook, bundle in bundles(configuration).items():
            trusts = served.is_trusted_by(bundle)
            words = "trusts" if trusts else "DOES NOT TRUST"
            click.echo(f"{kind} {name}, {webhook}: {words} the certificate")
            well = well and trusts
    return well

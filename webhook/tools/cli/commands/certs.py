"""``gpufence certs``: certificates as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from certs import CertificateError
from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME
from certs.files import issue as issue_files
from certs.keypair import (
    names_of,
)
from webhook.documents.document import InputError
from webhook.tools.cli.commands import SuggestingGroup


@click.group(cls=SuggestingGroup)
def certs() -> None:
    """Issue certificates as files."""


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

"""``gpufence certs``: the webhook's certificates as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from webhook.cli.commands.certs_secret import rotate, status
from webhook.cli.lazy import SuggestingGroup
from webhook.documents.errors import InputError

# The lifetimes of certs.authority, which takes too long to import for a help page.
_AUTHORITY_DAYS = 3650
_LEAF_DAYS = 365


@click.group(cls=SuggestingGroup)
def certs() -> None:
    """Issue certificates as files, or show and rotate those that gpufence manages."""


certs.add_command(status)
certs.add_command(rotate)


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
    default=_LEAF_DAYS,
    show_default=True,
    help="Lifetime of the serving certificate.",
)
@click.option(
    "--ca-days",
    type=click.IntRange(min=1),
    default=_AUTHORITY_DAYS,
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
    from certs.errors import CertificateError
    from certs.files import issue as issue_files

    try:
        issued = issue_files(
            dns_names,
            ip_addresses,
            out,
            datetime.now(UTC),
            timedelta(days=ca_days),
            timedelta(days=days),
            force=force,
        )
    except CertificateError as error:
        raise InputError([str(error)]) from error
    click.echo(
        f"Wrote ca.crt, ca.key, tls.crt and tls.key to {issued.directory}, for {issued.names}; "
        f"the CA expires on {issued.authority_expires:%Y-%m-%d}, "
        f"the certificate on {issued.leaf_expires:%Y-%m-%d}."
    )

"""``gpufence certs``: the webhook's certificates as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from webhook.cli.commands.certs_secret import rotate, status
from webhook.cli.errors import InputError
from webhook.cli.lazy import SuggestingGroup

# The lifetimes of certs.authority, which costs too much to import for a help page.
_AUTHORITY_DAYS = 3650
_LEAF_DAYS = 365


@click.group(cls=SuggestingGroup)
def certs() -> None:
    """Issue the webhook's certificates, or see to those that it keeps itself."""


certs.add_command(status)
certs.add_command(rotate)


@certs.command(
    epilog="""\b
Writes four files, the keys readable for their owner only:
  ca.crt, ca.key    the authority: base64 -w0 ca.crt is the configurations' caBundle
  tls.crt, tls.key  the serving certificate: for gpufence serve --tls-cert and --tls-key

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
    help="A name that the API server calls the webhook by (SERVICE.NAMESPACE.svc); repeatable.",
)
@click.option(
    "--ip",
    "ip_addresses",
    multiple=True,
    metavar="ADDRESS",
    help="An address that the API server calls the webhook at; repeatable.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to write to; made if it is not there.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1),
    default=_LEAF_DAYS,
    show_default=True,
    help="Life of the serving certificate.",
)
@click.option(
    "--ca-days",
    type=click.IntRange(min=1),
    default=_AUTHORITY_DAYS,
    show_default=True,
    help="Life of the authority.",
)
@click.option("--force", is_flag=True, help="Replace what is in the folder, authority and leaf.")
def issue(
    dns_names: tuple[str, ...],
    ip_addresses: tuple[str, ...],
    out: Path,
    days: int,
    ca_days: int,
    force: bool,
) -> None:
    """Create an authority and a serving certificate that it signs."""
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
        f"the authority ends on {issued.authority_expires:%Y-%m-%d}, "
        f"the certificate on {issued.leaf_expires:%Y-%m-%d}."
    )

"""``gpufence certs status|rotate``: the certificates that replicas keep in their Secret."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.errors import EXIT_FOUND, InputError
from webhook.cli.options.kubeconfig import (
    context_option,
    kubeconfig_option,
    release_namespace_option,
    with_api,
)
from webhook.cli.options.registration import DEFAULT_NAME
from webhook.cli.options.times import parse_duration

if TYPE_CHECKING:
    from certs.succession import Stored
    from webhook.kube.client import JSONObject, KubeApi

_secret_option = click.option(
    "--secret",
    default="gpufence-certificates",
    show_default=True,
    metavar="NAME",
    help="The Secret with authority and certificate.",
)


@click.command(
    epilog="""\b
Exit status:
  0  every webhook configuration trusts the certificate, and nothing is overdue
  1  something needs somebody: it is said what
  2  the cluster could not be asked

\b
Examples:
  gpufence certs status
  gpufence certs status --kubeconfig admin.conf || echo "see to the certificates"
""",
)
@kubeconfig_option
@context_option
@release_namespace_option
@_secret_option
@click.option(
    "--name",
    default=DEFAULT_NAME,
    show_default=True,
    metavar="NAME",
    help="The name of both webhook configurations.",
)
@click.pass_context
def status(
    ctx: click.Context,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    secret: str,
    name: str,
) -> None:
    """Show the certificates that a running gpufence keeps in its Secret."""

    async def work(api: KubeApi) -> bool:
        return await shown(api, namespace, secret, name, datetime.now(UTC))

    if not with_api(kubeconfig, work, context):
        ctx.exit(EXIT_FOUND)


@click.command(
    epilog="""\b
The next authority is published beside the one that signs. Running replicas do the rest: once every
webhook configuration has carried both for a while, the next one signs, and later the old one goes.
gpufence certs status shows how far it is.

\b
Examples:
  gpufence certs rotate
  gpufence certs rotate --authority-lifetime 8760h && gpufence certs status
""",
)
@kubeconfig_option
@context_option
@release_namespace_option
@_secret_option
@click.option(
    "--authority-lifetime",
    callback=parse_duration,
    default="87600h",
    show_default=True,
    metavar="TIME",
    help="Life of the next authority.",
)
def rotate(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    secret: str,
    authority_lifetime: timedelta,
) -> None:
    """Have the authority succeeded by a new one, long before it is due."""
    from certs.authority import create_authority
    from certs.secret import write_secret
    from webhook.registration.certificates import SecretName

    async def work(api: KubeApi) -> None:
        found, stored = await _read(api, namespace, secret)
        if stored.next is not None or stored.old:
            raise InputError(
                ["a rotation is under way; see gpufence certs status, and wait for its end"]
            )
        after = replace(stored, next=create_authority(datetime.now(UTC), authority_lifetime))
        await api.replace(
            SecretName(namespace, secret).path, write_secret(after, secret, namespace, found)
        )

    with_api(kubeconfig, work, context)
    click.echo(
        f"Secret {namespace}/{secret}: the next authority is published; replicas do the rest."
    )


async def shown(api: KubeApi, namespace: str, secret: str, name: str, now: datetime) -> bool:
    """Print what the Secret holds, and who trusts it; tell whether all is well."""
    _, stored = await _read(api, namespace, secret)
    well = _show(stored, now)
    return await _show_configurations(api, name, stored) and well


async def _read(api: KubeApi, namespace: str, secret: str) -> tuple[JSONObject, Stored]:
    from certs.secret import read_secret
    from webhook.registration.certificates import SecretName

    where = SecretName(namespace, secret)
    found = await api.read(where.path)
    stored = read_secret(found) if found is not None else None
    if found is None or stored is None:
        state = "does not exist" if found is None else "holds no certificates"
        cure = "a running gpufence creates it, unless it serves with --tls-cert"
        raise InputError([f"{where} {state}; {cure}"])
    return found, stored


def _show(stored: Stored, now: datetime) -> bool:
    """Print each certificate with its life; tell whether none is overdue."""
    from certs.errors import MaterialError
    from certs.keypair import parse_certificates
    from certs.renewal import renewal_due

    parts = [
        ("certificate", stored.leaf.certificate_pem),
        ("authority", stored.authority.certificate_pem),
        ("next authority", stored.next_certificate),
        ("old authority", stored.old),
    ]
    well = True
    for part, pem in parts:
        if not pem:
            continue
        try:
            [certificate, *_] = parse_certificates(pem, part)
        except MaterialError as error:
            click.echo(f"{part}: {error}")
            well = False
            continue
        end, due = certificate.not_valid_after_utc, renewal_due(certificate)
        late = "" if part == "old authority" or now < due else ", which is over"
        expired = " EXPIRED" if now > end else ""
        click.echo(
            f"{part}: {certificate.serial_number:x}, valid until {end.isoformat()}{expired}, "
            f"due at {due.isoformat()}{late}"
        )
        # Replicas renew within seconds of the due time: an hour later, something keeps them.
        well = well and (part == "old authority" or (now - due).total_seconds() < 3600)
    return _show_use(stored) and well


def _show_use(stored: Stored) -> bool:
    """Print why the certificate is of no use to anybody; tell whether it is of use."""
    from certs.errors import MaterialError
    from certs.keypair import is_certificate, parse_certificates, parse_pair
    from certs.renewal import is_issued_by

    if not is_certificate(stored.leaf.certificate_pem):
        return False  # That was said.
    try:
        leaf, _ = parse_pair(stored.leaf, "the certificate", "its private key")
    except MaterialError as error:
        click.echo(f"certificate: {error}")
        return False
    authorities = [parse_certificates(pem, "authority")[0] for pem in stored.authorities]
    if not any(is_issued_by(leaf, authority) for authority in authorities):
        click.echo("certificate: signed by none of the authorities, so nobody trusts it")
        return False
    return True


async def _show_configurations(api: KubeApi, name: str, stored: Stored) -> bool:
    """Print whether each webhook trusts all of the authorities; tell whether all do."""
    from webhook.registration.registrar import KINDS

    well = True
    for kind, path in KINDS.items():
        configuration = await api.read(f"{path}/{name}")
        if configuration is None:
            click.echo(f"{kind} {name}: does not exist")
            well = False
            continue
        for webhook in configuration.get("webhooks") or ():
            bundle = base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "")
            carries = stored.is_carried_by(bundle)
            words = "trusts" if carries else "DOES NOT TRUST"
            count = len(stored.authorities)
            what = "the authority" if count < 2 else f"all {count} authorities"
            click.echo(f"{kind} {name}, {webhook.get('name')}: {words} {what}")
            well = well and carries
    return well

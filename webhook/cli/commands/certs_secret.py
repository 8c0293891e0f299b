"""``gpufence certs status|rotate``: the certificates that replicas manage in their Secret."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.errors import EXIT_FOUND
from webhook.cli.options.common import valid_name
from webhook.cli.options.earlier import EarlierOptions
from webhook.cli.options.kubeconfig import (
    context_option,
    kubeconfig_option,
    release_namespace_option,
    with_api,
)
from webhook.cli.options.registration import DEFAULT_NAME
from webhook.cli.options.times import parse_duration
from webhook.documents.errors import InputError

if TYPE_CHECKING:
    from certs.succession import Stored
    from webhook.kube.client import JSONObject, KubeApi

_secret_option = click.option(
    "--secret",
    default="gpufence-certificates",
    show_default=True,
    callback=valid_name,
    metavar="NAME",
    help="Secret with the CA and the serving certificate.",
)


@click.command(
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
@kubeconfig_option
@context_option
@release_namespace_option
@_secret_option
@click.option(
    "--name",
    default=DEFAULT_NAME,
    show_default=True,
    callback=valid_name,
    metavar="NAME",
    help="Name of both webhook configurations.",
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
    """Show the certificates that running replicas manage in their Secret."""

    async def work(api: KubeApi) -> bool:
        return await shown(api, namespace, secret, name)

    if not with_api(kubeconfig, work, context):
        ctx.exit(EXIT_FOUND)


@click.command(
    cls=EarlierOptions,
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
@kubeconfig_option
@context_option
@release_namespace_option
@_secret_option
@click.option(
    "--ca-lifetime",
    callback=parse_duration,
    default="87600h",
    show_default=True,
    metavar="TIME",
    help="Lifetime of the next CA.",
)
def rotate(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    secret: str,
    ca_lifetime: timedelta,
) -> None:
    """Rotate the CA early."""

    async def work(api: KubeApi) -> None:
        await publish_next(api, namespace, secret, ca_lifetime)

    with_api(kubeconfig, work, context)
    click.echo(
        f"Secret {namespace}/{secret}: the next CA is published. Running replicas complete the "
        "rotation."
    )


async def publish_next(api: KubeApi, namespace: str, secret: str, lifetime: timedelta) -> None:
    """Write the next CA into the Secret. It is valid by the API server's clock, as all are.

    Raises:
        InputError: there is no Secret, or a rotation is in progress.
        ClusterError: the request failed.
    """
    from webhook.kube.client import CONFLICT
    from webhook.kube.errors import ApiError

    try:
        await _try_to_publish_next(api, namespace, secret, lifetime)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        # A replica renewed the certificate in between.
        await _try_to_publish_next(api, namespace, secret, lifetime)


async def _try_to_publish_next(
    api: KubeApi, namespace: str, secret: str, lifetime: timedelta
) -> None:
    from certs.authority import create_authority
    from certs.secret import write_secret
    from webhook.registration.certificates import SecretName

    live, stored = await _read(api, namespace, secret)
    if stored.next is not None or stored.old:
        raise InputError(
            ["A rotation is in progress. To see when it completes, run gpufence certs status."]
        )
    after = replace(stored, next=create_authority(api.clock.now(), lifetime))
    await api.replace(
        SecretName(namespace, secret).path, write_secret(after, secret, namespace, live)
    )


async def shown(api: KubeApi, namespace: str, secret: str, name: str) -> bool:
    """Print the certificates and who trusts them; return whether there is no problem."""
    _, stored = await _read(api, namespace, secret)
    well = _show(stored, api.clock.now())
    return await _show_configurations(api, name, stored) and well


async def _read(api: KubeApi, namespace: str, secret: str) -> tuple[JSONObject, Stored]:
    from certs.secret import read_secret
    from webhook.registration.certificates import SecretName

    where = SecretName(namespace, secret)
    live = await api.read(where.path)
    stored = read_secret(live) if live is not None else None
    if live is None or stored is None:
        state = "does not exist" if live is None else "holds no certificates"
        cure = "Running replicas create it, unless they serve with --tls-cert"
        raise InputError([f"{where} {state}. {cure}."])
    return live, stored


def _show(stored: Stored, now: datetime) -> bool:
    """Print each certificate with its lifetime; return whether no renewal is overdue."""
    from certs.errors import MaterialError
    from certs.keypair import parse_certificates
    from certs.renewal import renewal_due

    parts = [
        ("certificate", stored.leaf.certificate_pem),
        ("CA", stored.authority.certificate_pem),
        ("next CA", stored.next_certificate),
        ("old CA", stored.old),
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
        late = "" if part == "old CA" or now < due else ", overdue"
        expired = " EXPIRED" if now > end else ""
        click.echo(
            f"{part}: {certificate.serial_number:x}, valid until {end.isoformat()}{expired}, "
            f"renewal at {due.isoformat()}{late}"
        )
        # Replicas renew within seconds. After an hour, something keeps them from it.
        well = well and (part == "old CA" or (now - due).total_seconds() < 3600)
    return _show_use(stored) and well


def _show_use(stored: Stored) -> bool:
    """Print why the certificate is not usable; return whether it is."""
    from certs.errors import MaterialError
    from certs.keypair import is_certificate, parse_certificates, parse_pair
    from certs.renewal import is_issued_by

    if not is_certificate(stored.leaf.certificate_pem):
        return False  # The caller has reported that.
    try:
        leaf, _ = parse_pair(stored.leaf, "the certificate", "its private key")
    except MaterialError as error:
        click.echo(f"certificate: {error}")
        return False
    authorities = [parse_certificates(pem, "CA")[0] for pem in stored.authorities]
    if not any(is_issued_by(leaf, authority) for authority in authorities):
        click.echo("certificate: not signed by any of the CAs, so API servers do not trust it")
        return False
    return True


async def _show_configurations(api: KubeApi, name: str, stored: Stored) -> bool:
    """Print whether each webhook trusts all CAs; return whether all do."""
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
            what = "the CA" if count < 2 else f"all {count} CAs"
            click.echo(f"{kind} {name}, {webhook.get('name')}: {words} {what}")
            well = well and carries
    return well

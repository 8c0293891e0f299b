"""Parses the command line of a release's replicas with the options of ``serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from webhook.cli.options.registration import registration_options

if TYPE_CHECKING:
    from webhook.doctor.installation import Deployed
    from webhook.registration.configurations import Registration


def read_arguments(arguments: list[str]) -> Deployed:
    """Parse the arguments of a replica's container.

    Raises:
        InputError: this version does not know the arguments.
    """
    from webhook.documents.errors import InputError

    try:
        deployed: Deployed = _reader.main(
            [argument for argument in arguments if argument != "serve"], standalone_mode=False
        )
    except (click.ClickException, InputError) as error:
        problem = f"the Deployment does not run a known gpufence serve: {error}"
        cure = "Run the doctor of the installed version"
        raise InputError([f"{problem}. {cure}."]) from error
    return deployed


# Without --help, which prints and returns no Deployed.
@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@registration_options
@click.option("--secret", default="gpufence-certificates")
@click.option("--tls-cert")
@click.option("--register", type=click.BOOL, default=True)
@click.option("--admission-policies/--no-admission-policies", default=True)
def _reader(
    registration: Registration,
    secret: str,
    tls_cert: str | None,
    register: bool,
    admission_policies: bool,
) -> Any:
    from webhook.doctor.installation import Deployed

    return Deployed(registration, "" if tls_cert else secret, register, admission_policies)

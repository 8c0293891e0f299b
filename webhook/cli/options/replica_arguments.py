"""What the command line of a release's replicas says, read by the options of ``serve`` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from webhook.cli.options.registration import registration_options

if TYPE_CHECKING:
    from webhook.doctor.installation import Deployed
    from webhook.registration.configurations import Registration


def read_arguments(arguments: list[str]) -> Deployed:
    """Read the arguments of a replica's container.

    Raises:
        InputError: they are not such as this version knows.
    """
    from webhook.cli.errors import InputError

    try:
        deployed: Deployed = _reader.main(
            [each for each in arguments if each != "serve"], standalone_mode=False
        )
    except click.ClickException as error:
        problem = f"the Deployment's command line is none of gpufence serve: {error}"
        cure = "Use the doctor of the version that is installed"
        raise InputError([f"{problem}. {cure}."]) from error
    return deployed


# Also --help is none of its own: it would print, and return no Deployed.
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

"""``gpufence doctor``: diagnose an installation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from certs import CertificateError
from webhook.documents.document import InputError
from webhook.kube.writer import KubeWriter
from webhook.tools.cli.commands import EXIT_FOUND
from webhook.tools.cli.commands.controller import controller, following
from webhook.tools.cli.commands.serve import serve
from webhook.tools.cli.flags import (
    fence_policy_option,
    name_option,
    policy_path_option,
    release_name_option,
    release_namespace_option,
)
from webhook.tools.cli.options import Connection, connection_options
from webhook.tools.cli.registration import make_registration
from webhook.tools.cli.report.output import (
    Output,
    check_outputs,
    output_option,
    write_reports,
)
from webhook.tools.doctor import FAULTS, DoctorLine, checks, trials
from webhook.tools.doctor.installation import Deployed, examine


@click.command(
    epilog="""\b
Exit status:
  0  no check fails; warnings, and checks that do not apply, are reported
  1  a check fails or could not be made; it says what to do
  2  the cluster is not reachable

\b
Examples:
  gpufence doctor
  gpufence doctor --context production --try-in ml
  gpufence doctor --output json | jq '.lines[] | select(.status == "fail")'
""",
)
@connection_options
@release_namespace_option
@release_name_option("The name of the release: its Deployment and webhook configurations.")
@policy_path_option(
    "Policy file that must be active. The default is the FencePolicy that replicas follow."
)
@fence_policy_option
@name_option(
    "--try-in",
    default="default",
    text="Namespace for the dry runs that create Pods. The API server does not store them.",
)
@output_option("doctor")
def doctor(
    connection: Connection,
    namespace: str,
    name: str,
    policy_path: str | None,
    fence_policy: str | None,
    try_in: str,
    outputs: Sequence[Output],
) -> int:
    """Diagnose an installation from end to end.

    For each problem, it prints what to do. The doctor changes nothing in the cluster. What the
    account may not read is reported as unknown.
    """
    if policy_path is not None and fence_policy is not None:
        raise click.UsageError("--policy and --fence-policy exclude each other.")
    check_outputs(outputs, [policy_path, connection.kubeconfig])

    async def work(api: KubeWriter) -> list[DoctorLine]:
        try:
            installed = await examine(
                api, namespace, name, policy_path, fence_policy, read_replica, read_arguments
            )
        except CertificateError as error:
            raise InputError([str(error)]) from error
        lines = [*checks.diagnosis(installed)]
        return [*lines, *[line async for line in trials.check(api, installed, try_in)]]

    lines = connection.run(work)
    write_reports("doctor", lines, outputs)
    return EXIT_FOUND if any(line.status in FAULTS for line in lines) else 0


def read_replica(arguments: list[str]) -> tuple[bool, str]:
    """Return whether a replica decides with cluster facts, and the FencePolicy that it follows.

    The name is empty where it reads a file.
    """
    given = _parsed(serve, arguments)
    return given["with_nodes"], "" if given["policy_path"] else given["fence_policy"]


def read_arguments(arguments: list[str]) -> Deployed:
    """Parse the arguments of the controller's container.

    Raises:
        InputError: this version does not know the arguments.
    """
    given = _parsed(controller, arguments)
    return Deployed(
        following(make_registration(**given), given["policy_path"]),
        given["serving_secret"],
        given["ca_secret"] if given["issue"] else "",
        given["admission_policies"],
    )


def _parsed(command: click.Command, arguments: list[str]) -> dict[str, Any]:
    """Return the options of a command.

    Raises:
        InputError: this version does not know the arguments.
    """
    name = command.name or ""
    try:
        # Another version may have other options.
        context = command.make_context(
            name,
            [argument for argument in arguments if argument != name],
            help_option_names=[],
            ignore_unknown_options=True,
            allow_extra_args=True,
        )
    except (click.ClickException, InputError) as error:
        problem = f"the Deployment does not run a known gpufence {name}: {error}"
        cure = "Run the doctor of the installed version"
        raise InputError([f"{problem}. {cure}."]) from error
    return context.params

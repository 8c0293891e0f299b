"""``gpufence doctor``: diagnose an installation."""

from __future__ import annotations

from collections.abc import Sequence

import click

from certs.errors import CertificateError
from webhook.cli.commands import EXIT_FOUND
from webhook.cli.commands.serve import serve
from webhook.cli.options import (
    Connection,
    connection_options,
    name_option,
    policy_path_option,
    release_name_option,
    release_namespace_option,
)
from webhook.cli.registration_options import make_registration
from webhook.cli.report.output import (
    Output,
    check_outputs,
    color_option,
    output_option,
    write_reports,
)
from webhook.cli.report.terminal import Color
from webhook.doctor import cluster, registered, replicas, trials
from webhook.doctor.installation import Deployed, examine
from webhook.doctor.line import DoctorLine
from webhook.documents.document import InputError
from webhook.kube.client import KubeApi
from webhook.registration.certificates import names_of


@click.command(
    epilog="""\b
Exit status:
  0  no check fails; warnings and skipped checks are reported
  1  a check fails; each failed check says what to do
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
@release_name_option("The name of the release: its Deployment, Lease and webhook configurations.")
@policy_path_option(
    "Policy that must be active. The default is the policy in the ConfigMap of the release."
)
@name_option(
    "--try-in",
    default="default",
    text="Namespace for the dry run that creates two Pods. The API server does not store them.",
)
@output_option("doctor")
@color_option
def doctor(
    connection: Connection,
    namespace: str,
    name: str,
    policy_path: str | None,
    try_in: str,
    outputs: Sequence[Output],
    color: Color,
) -> int:
    """Diagnose an installation from end to end.

    For each problem, it prints what to do. The doctor changes nothing in the cluster. Checks for
    which the account lacks access are skipped and reported.
    """
    check_outputs(outputs, [policy_path, connection.kubeconfig])
    lines = connection.run(lambda api: diagnosed(api, namespace, name, policy_path, try_in))
    write_reports("doctor", lines, outputs, color)
    return EXIT_FOUND if any(line.status == "fail" for line in lines) else 0


async def diagnosed(
    api: KubeApi, namespace: str, name: str, policy_path: str | None, try_in: str
) -> list[DoctorLine]:
    """Return a line for each check, causes before their consequences.

    The arguments are the options of the command. The trials create Pods as a dry run.

    Raises:
        ClusterError: the cluster is not reachable.
        InputError: the policy file or the command line of the replicas is invalid.
    """
    installed = await examine(api, namespace, name, policy_path, read_arguments)
    try:
        names = names_of(installed.address) if installed.address else None
    except CertificateError as error:
        raise InputError([str(error)]) from error
    now = api.clock.now()
    return [
        cluster.check_version(installed),
        *cluster.check_policy(installed),
        *replicas.check_running(installed, now),
        *[line async for line in cluster.check_facts(api, installed)],
        *replicas.check_certificate(installed, names, now),
        *registered.check(installed, now.date()),
        await cluster.check_exempt_namespaces(api, installed),
        *[line async for line in trials.check(api, installed, try_in)],
    ]


def read_arguments(arguments: list[str]) -> Deployed:
    """Parse the arguments of a replica's container.

    Raises:
        InputError: this version does not know the arguments.
    """
    options = [argument for argument in arguments if argument != "serve"]
    try:
        # A replica of another version may have other options.
        context = serve.make_context(
            "serve",
            options,
            help_option_names=[],
            ignore_unknown_options=True,
            allow_extra_args=True,
        )
        registration = make_registration(**context.params)
    except (click.ClickException, InputError) as error:
        problem = f"the Deployment does not run a known gpufence serve: {error}"
        cure = "Run the doctor of the installed version"
        raise InputError([f"{problem}. {cure}."]) from error
    given = context.params
    return Deployed(
        registration,
        "" if given["tls_cert"] else given["secret"],
        # Without the option, a replica in a cluster registers.
        given["register"] is not False,
        given["admission_policies"],
    )

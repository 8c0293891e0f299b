"""``gpufence doctor``: diagnose an installation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
    unwritable,
    write_file,
    write_reports,
)
from webhook.tools.cli.yaml_writer import to_yaml
from webhook.tools.doctor import FAULTS, DoctorLine, checks, device_access, trials
from webhook.tools.doctor.installation import Deployed, examine
from webhook.wording import printable


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
  gpufence doctor --evidence conformance --run-image registry.example/busybox:1
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
@click.option(
    "--evidence",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Write the evidence for secure_accelerator_access of CNCF's Kubernetes AI Conformance: "
    "JUnit, and the entry of PRODUCT.yaml.",
)
@click.option(
    "--run-image",
    metavar="IMAGE",
    help="For the evidence, run Pods with this image, which needs a shell, in the namespace of "
    "--try-in: one without a GPU, and two for each pool, with one GPU each. They are deleted.",
)
@output_option("doctor")
def doctor(
    connection: Connection,
    namespace: str,
    name: str,
    policy_path: str | None,
    fence_policy: str | None,
    try_in: str,
    evidence: Path | None,
    run_image: str | None,
    outputs: Sequence[Output],
) -> int:
    """Diagnose an installation from end to end.

    For each problem, it prints what to do. The doctor changes nothing in the cluster, except for
    the Pods of --run-image. What the account may not read is reported as unknown.
    """
    if policy_path is not None and fence_policy is not None:
        raise click.UsageError("--policy and --fence-policy exclude each other.")
    if run_image is not None and evidence is None:
        raise click.UsageError("--run-image needs --evidence.")
    files = _evidence_files(evidence) if evidence is not None else []
    check_outputs([*outputs, *files], [policy_path, connection.kubeconfig])

    async def work(api: KubeWriter) -> tuple[list[DoctorLine], list[DoctorLine], str]:
        try:
            installed = await examine(
                api, namespace, name, policy_path, fence_policy, read_replica, read_arguments
            )
        except CertificateError as error:
            raise InputError([str(error)]) from error
        lines = [*checks.diagnosis(installed)]
        tried = [line async for line in trials.check(api, installed, try_in)]
        if evidence is not None:
            evident = device_access.check(api, installed, try_in, run_image)
            tried += [line async for line in evident]
        return lines, tried, installed.version

    lines, tried, version = connection.run(work)
    write_reports("doctor", [*lines, *tried], outputs)
    if files:
        report, checklist = files
        write_reports("doctor", tried, [report])
        entry = device_access.entry(tried, version, Path(report.path).name)
        write_file(checklist.path, to_yaml(entry))
    return EXIT_FOUND if any(line.status in FAULTS for line in [*lines, *tried]) else 0


def _evidence_files(directory: Path) -> list[Output]:
    """Create the directory, and return its files: the JUnit report, and the checklist in YAML.

    Raises:
        InputError: the directory cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(printable(str(directory)), error) from error
    path = str(directory / device_access.REQUIREMENT)
    return [Output("junit", f"{path}.xml"), Output("yaml", f"{path}.yaml")]


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

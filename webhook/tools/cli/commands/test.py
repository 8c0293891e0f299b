"""``gpufence test``: test cases for a policy."""

from __future__ import annotations

from collections.abc import Sequence

import click

from webhook.documents.document import InputError
from webhook.tools.cli.commands import EXIT_FOUND, EXIT_INPUT
from webhook.tools.cli.options import PATH
from webhook.tools.cli.report.content import SuitesReport
from webhook.tools.cli.report.output import (
    Output,
    check_outputs,
    output_option,
    write_reports,
)
from webhook.tools.cli.suites import Suite, find, read, run


@click.command(
    epilog="""\b
Exit status:
  0  every case passes
  1  a case fails
  2  an invalid suite, manifest or usage; all other cases run

\b
A suite, gpufence-test.yaml (paths are relative to its directory):
  apiVersion: gpufence.dev/v1beta1
  kind: FenceTest
  policy: policy.yaml
  cases:
    - name: a Job that requests a GPU runs on the GPU nodes
      manifest: job.yaml
      expect:
        verdict: mutated
        values:
          spec.template.spec.tolerations[0].key: nvidia.com/gpu
    - name: a web server on the GPU nodes is denied
      manifest: web.yaml
      expect:
        verdict: denied
        rules: [pool-trespass]

\b
Examples:
  gpufence test policy-tests/
  gpufence test --output junit policy-tests/ > report.xml
""",
)
@click.argument("paths", nargs=-1, metavar="[DIR|FILE]...", type=PATH)
@output_option("suites")
def test(paths: tuple[str, ...], outputs: Sequence[Output]) -> int:
    """Test a policy: specify the expected result for each manifest.

    Suites are files of kind FenceTest, named gpufence-test.yaml or *.gpufence-test.yaml. gpufence
    searches the directories, by default the working directory, with all directories below them.
    """
    files = find(paths or ["."])
    check_outputs(outputs, files)
    suites: list[Suite] = []
    problems: list[str] = []
    for path in files:
        try:
            suites += read(path)
        except InputError as error:
            problems += error.lines
    outcomes = [outcome for suite in suites for outcome in run(suite)]
    if problems and not outcomes:
        raise InputError(problems)
    write_reports("suites", SuitesReport(len(suites), outcomes), outputs)
    if problems:
        raise InputError(problems)
    states = {outcome.state for outcome in outcomes}
    if "error" in states:
        return EXIT_INPUT
    return EXIT_FOUND if "failed" in states else 0

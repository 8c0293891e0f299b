"""``gpufence test``: test cases for a policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from policies.registry import RULES
from webhook.documents.document import InputError
from webhook.tools.cli.commands import EXIT_FOUND, EXIT_INPUT
from webhook.tools.cli.options import PATH
from webhook.tools.cli.report.content import Outcome, SuitesReport
from webhook.tools.cli.report.output import (
    Color,
    Output,
    check_outputs,
    color_option,
    output_option,
    write_reports,
)
from webhook.tools.cli.suites import Suite, find, read, run


@click.command(
    epilog="""\b
Exit status:
  0  every case passes
  1  a case fails; with --rules-coverage, also if no case exercises a rule
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
@color_option
@click.option(
    "--rules-coverage",
    is_flag=True,
    help="Fail if no case exercises an enabled rule. The summary names such rules in any case.",
)
def test(
    paths: tuple[str, ...],
    outputs: Sequence[Output],
    color: Color,
    rules_coverage: bool,
) -> int:
    """Test a policy: specify the expected result for each manifest.

    Suites are files of kind FenceTest, named gpufence-test.yaml or *.gpufence-test.yaml. gpufence
    searches the directories, by default the working directory, with all directories below them. A
    case exercises a rule if the rule adds or finds something.
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
    unexercised = _unexercised(outcomes, suites)
    write_reports("suites", SuitesReport(len(suites), outcomes, unexercised), outputs, color)
    if problems:
        raise InputError(problems)
    states = {outcome.state for outcome in outcomes}
    if "error" in states:
        return EXIT_INPUT
    return EXIT_FOUND if "failed" in states or (rules_coverage and unexercised) else 0


def _unexercised(outcomes: Iterable[Outcome], suites: Iterable[Suite]) -> list[str]:
    """Return the rules that no case exercises, although a policy enables them."""
    exercised = {rule for outcome in outcomes for rule in outcome.exercised}
    on = {
        rule
        for suite in suites
        for actions in suite.policy.action_sets
        for rule, action in actions.written.items()
        if action != "off"
    }
    return [rule.id for rule in RULES if rule.id in on - exercised]

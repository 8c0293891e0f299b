"""``gpufence test``: a team's own policy, tested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from webhook.cli.errors import EXIT_FOUND, EXIT_INPUT, InputError
from webhook.cli.options.common import PATH
from webhook.cli.options.outputs import (
    color_option,
    output_option,
    reject_overwriting_inputs,
)
from webhook.cli.report.writer import Output, report_writer

# What running suites needs is imported where it is used: help and completion need none of it.
if TYPE_CHECKING:
    from policies.policy import Policy
    from webhook.cli.report.content import Outcome
    from webhook.cli.report.terminal import Color


@click.command(
    epilog="""\b
Exit status:
  0  every case passed
  1  a case failed; with --rules-coverage also, where no case exercises a rule
  2  a suite or a manifest is at fault, or the usage; the rest was run all the same

\b
A suite, gpufence-test.yaml (paths are relative to its folder):
  apiVersion: gpufence.dev/v1alpha1
  kind: FenceTest
  policy: policy.yaml
  cases:
    - name: a job that requests a GPU gets to the GPU nodes
      manifest: job.yaml
      expect:
        verdict: mutated
        values:
          spec.template.spec.tolerations[0].key: nvidia.com/gpu
    - name: a web server stays away from them
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
    help="Fail where no case exercises a rule that the policies have not switched off. The summary "
    "names such rules in any case.",
)
def test(
    paths: tuple[str, ...],
    outputs: Sequence[Output],
    color: Color,
    rules_coverage: bool,
) -> int:
    """Test a policy: manifests with the verdict, rules and values that are expected of it.

    Suites are files called gpufence-test.yaml, or *.gpufence-test.yaml, of kind FenceTest; in a
    folder, and the folders below it, they are looked for: in this one without an argument. A rule
    is exercised by a case in which it adds or finds something.
    """
    from webhook.cli.report.content import SuitesReport
    from webhook.cli.suites.run import policy_of, run
    from webhook.cli.suites.suite import find, read

    files = find(paths or ["."])
    reject_overwriting_inputs(outputs, files)
    outcomes: list[Outcome] = []
    policies: list[Policy] = []
    problems: list[str] = []
    with report_writer("suites", outputs, color) as write:
        for path in files:
            try:
                suites = [(suite, policy_of(suite)) for suite in read(path)]
            except InputError as error:
                problems += error.lines
                continue
            for suite, policy in suites:
                policies.append(policy)
                outcomes += run(suite, policy)
        if problems and not outcomes:
            raise InputError(problems)
        unexercised = _unexercised(outcomes, policies)
        write(SuitesReport(len(policies), outcomes, unexercised))
    if problems:
        raise InputError(problems)
    states = {outcome.state for outcome in outcomes}
    if "error" in states:
        return EXIT_INPUT
    return EXIT_FOUND if "failed" in states or (rules_coverage and unexercised) else 0


def _unexercised(outcomes: Iterable[Outcome], policies: Iterable[Policy]) -> list[str]:
    """Return the rules that no case exercises, and that a policy has switched on somewhere."""
    from policies.registry import RULES

    exercised = {rule for outcome in outcomes for rule in outcome.exercised}
    on = {
        rule
        for policy in policies
        for actions in (policy.actions, *policy.overrides.values())
        for rule, action in actions.items()
        if action != "off"
    }
    return [rule.id for rule in RULES if rule.id in on - exercised]

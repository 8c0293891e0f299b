"""``gpufence check``: verdicts, findings and changes for manifests."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from webhook.cluster.manifests import facts_among
from webhook.documents.document import InputError, sentence
from webhook.documents.files import STDIN, display_name
from webhook.documents.objects import Manifest
from webhook.tools.cli.commands import EXIT_BUG, EXIT_FOUND, EXIT_INPUT
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.manifests import (
    expand,
    is_directory,
    is_link_elsewhere,
    is_special_file,
    no_objects_message,
    read_sources,
)
from webhook.tools.cli.options import (
    PATH,
    Evaluation,
    evaluation_options,
    exclude_option,
    quiet_option,
)
from webhook.tools.cli.report.content import CheckReport
from webhook.tools.cli.report.output import (
    TEXT,
    Output,
    check_outputs,
    output_option,
    write_reports,
)
from webhook.wording import counted, printable, some

if TYPE_CHECKING:
    from webhook.tools.cli.fixes import FixedFile


MISSING_FACTS = {
    "nodes": "the webhook also checks whether spec.nodeName is a GPU node. To check this, add "
    "--cluster or --nodes FILE",
    "namespaces": "the verdict also depends on the labels of the namespace, which are unknown "
    "(allowedNamespaces, namespaceSelector). Add the manifest of the Namespace, or --cluster",
    "resourceclaims": "the verdict also depends on resource claims that are unknown. Add the "
    "manifests of the claims or of their templates, or --cluster",
}
"""By fact: what depends on it, and how to provide it."""


@click.command(
    epilog="""\b
Exit status:
  0    no findings that fail the check (--fail-on)
  1    at least one such finding; with --strict, also what is unknown or skipped with a note
  2    invalid input or usage; all other manifests are checked
  70   a bug in gpufence
  130  interrupted
  141  the reader of the report closed the pipe

\b
Examples:
  gpufence check train.yaml
  gpufence check --policy policy.yaml --namespace ml deploy/
  gpufence check --exclude charts --exclude '**/testdata'
  gpufence check --diff deploy/; gpufence check --fix deploy/
  kustomize build . | gpufence check -
  helm template chart/ | gpufence check --output json - > report.json
  kubectl get nodes -o json | gpufence check --nodes - deploy/

\b
In a pipeline:
  gpufence check --output github --output sarif=gpufence.sarif deploy/
  gpufence check --output text --output junit=gpufence.xml --fail-on warn deploy/
""",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=PATH)
@exclude_option
@evaluation_options
@output_option("check")
@quiet_option
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="In text, show every object, those that are allowed or skipped as well.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["enforce", "warn"]),
    default="enforce",
    show_default=True,
    help="Findings that fail the check: only enforced findings, or warnings as well.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if gpufence does not judge something: an unknown object, a document that is no "
    "object, or in a directory one with placeholders, a hidden file, a chart, or a patch. By "
    "default, it reports and skips them.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Fix what has one obvious remedy, in the files: unequal device limits, missing shared "
    "memory, misspelled devices, and tolerations and device variables of Pods that request no "
    "device. Everything else in the files stays as it is. The report shows what remains.",
)
@click.option(
    "--diff",
    is_flag=True,
    help="Show what --fix would change, and change nothing. Exit with 1 if there is something.",
)
@click.option(
    "--allow-empty",
    is_flag=True,
    help="Exit with 0 when the paths hold no objects. Empty standard input stays an error.",
)
def check(
    paths: tuple[str, ...],
    exclude: tuple[str, ...],
    evaluation: Evaluation,
    outputs: Sequence[Output],
    quiet: bool,
    verbose: bool,
    fail_on: str,
    strict: bool,
    fix: bool,
    diff: bool,
    allow_empty: bool,
) -> int:
    """Check manifests: what the webhook denies, and what it changes.

    PATH is a file, a directory (every .yaml, .yml and .json below it), or - for standard input. The
    default is the working directory. Multi-document YAML, JSON, JSON lines and Lists are accepted.
    Helm charts, hidden files, and the patches that a kustomization.yaml names are skipped with a
    note.

    ResourceClaims, ResourceClaimTemplates, DeviceClasses and Namespaces among the manifests count
    for the Pods in the other manifests. --nodes adds the nodes of a cluster, --cluster adds
    everything that a live cluster knows.
    """
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other.")
    paths = paths or (".",)
    now = datetime.now(UTC)
    policy_choice, request = evaluation.policy_choice, evaluation.request
    for path in paths if fix else ():
        if path == STDIN or (is_special_file(path) and not is_directory(path)):
            what = "standard input" if path == STDIN else "no regular file"
            raise click.UsageError(f"--fix changes files, and {path} is {what}. Name the files.")
    for path in paths if fix or diff else ():
        if path != STDIN and is_link_elsewhere(path):
            raise click.UsageError(
                f"--fix changes no file elsewhere, and {display_name(path)} is a link to one. "
                "Name its target."
            )
    title, policy = evaluation.load_policy()
    sources = expand(paths, exclude, allow_empty=allow_empty)
    inputs = [policy_choice.path, evaluation.nodes, *(source.path for source in sources)]
    check_outputs(outputs, inputs, "Name another file for the report, or --exclude the input")
    manifests = list(read_sources(sources, lenient=not strict))
    unfixed = False
    with evaluation.facts(policy) as complete:
        if fix or diff:
            from webhook.tools.cli.fixes import fixed_files

            facts_in = facts_among(manifests, request.namespace)

            def judge(some: Sequence[Manifest]) -> Iterable[Result]:
                return evaluate(some, policy, request, complete, facts_in)

            files = fixed_files(sources, judge)
            if diff:
                status = 0
                for file in files:
                    status = EXIT_FOUND
                    sys.stdout.buffer.write(file.difference().encode())
                return status
            unfixed = _fix(files)
            manifests = list(read_sources(sources, lenient=not strict))
        results = list(evaluate(manifests, policy, request, complete))
    report = CheckReport(title, now, results, policy.help, quiet, verbose)
    write_reports("check", report, outputs)
    _print_notes(results, strict=strict, with_errors=Output(TEXT) not in outputs)
    if not results:
        if STDIN in paths:
            raise InputError([no_objects_message(paths)])
        if not allow_empty:
            cure = "Check the tool that wrote them, or add --allow-empty"
            raise InputError([no_objects_message(paths, cure)])
    if any(result.judgement.bugs for result in results):
        return EXIT_BUG
    if unfixed or any(result.error is not None for result in results):
        return EXIT_INPUT
    denied = any(result.verdict == "denied" for result in results)
    warned = any(finding.action == "warn" for each in results for finding in each.findings)
    unknown = any(each.decision.unjudged for each in results)
    skipped = any(result.note or not (result.kind or result.error) for result in results)
    failed = denied or (fail_on == "warn" and warned) or (strict and (unknown or skipped))
    return EXIT_FOUND if failed else 0


def _fix(files: Iterable[FixedFile]) -> bool:
    """Fix files; return whether one of them could not be written."""
    failed = False
    for file in files:
        try:
            file.write()
        except InputError as error:
            failed = True
            click.echo(f"Error: {error}", err=True)
            continue
        for line, rule, edits in file.fixes:
            text = f"{display_name(file.path)}:{line}: {rule}: {', '.join(map(str, edits))}"
            click.echo(f"Fixed: {printable(text)}.", err=True)
    return failed


def _print_notes(results: Sequence[Result], *, strict: bool, with_errors: bool) -> None:
    """Write to standard error what is skipped, not judged, or also depends on the cluster."""
    unread: dict[str, list[str]] = {}
    documents_skipped = 0
    for result in results:
        if result.note and result.manifest.document.text:
            documents_skipped += 1
        elif result.note:
            unread.setdefault(result.note, []).append(result.manifest.document.path)
    for note, paths in unread.items():
        _print_note(printable(f"skipped {some(paths)}: {note}."))
    if documents_skipped:
        documents = counted(documents_skipped, "document")
        cure = "To report them as errors, add --strict"
        _print_note(
            f"skipped {documents} with placeholders, or without apiVersion or kind. {cure}."
        )
    for result in results:
        if result.duplicate is not None:
            duplicate = sentence(result.manifest.document, result.duplicate)
            click.echo(f"Warning: {printable(duplicate)}", err=True)
        for bug in result.judgement.bugs if result.error is None else ():
            place = f"{result.manifest.document.path}:{result.manifest.line}"
            text = f"{place}: {result.title} is checked without a rule: {bug}"
            click.echo(f"Warning: {printable(text)}.", err=True)
    if unknown := sum(bool(result.decision.unjudged) for result in results):
        verb, whose = ("is", "its") if unknown == 1 else ("are", "their")
        cure = "" if strict else " To fail on them, add --strict."
        why = f"gpufence cannot judge {whose} Pods before they are created"
        _print_note(f"{counted(unknown, 'object')} {verb} unknown: {why}.{cure}")
    missing = Counter(fact for result in results for fact in result.decision.missing_facts)
    for fact, number in missing.items():
        _print_note(f"{counted(number, 'object')}: {MISSING_FACTS[fact]}.")
    fixable = sum(bool(result.fix(finding)) for result in results for finding in result.findings)
    if fixable and sys.stderr.isatty():
        findings = counted(fixable, "finding")
        _print_note(f"{findings} can be fixed: add --diff to see how, or --fix to do it.")
    for result in results if with_errors else ():
        if result.error is not None:
            error = sentence(result.manifest.document, result.error)
            click.echo(f"Error: {printable(error)}", err=True)


def _print_note(text: str) -> None:
    click.echo(f"Note: {text}", err=True)

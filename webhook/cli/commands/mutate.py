"""``gpufence mutate``: manifests with the mutations of the webhook."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from policies.facts import Request
from webhook.cli.manifests.evaluate import evaluate, no_objects_message, read_manifests
from webhook.cli.manifests.files import Exclusion
from webhook.cli.manifests.mutated import mutated_documents, report_denied, write_documents
from webhook.cli.options.cluster import ClusterContext, cluster_context_options
from webhook.cli.options.common import (
    exclude_option,
    namespace_option,
    paths_argument,
    policy_option,
)
from webhook.cli.policy.policy_choice import PolicyChoice
from webhook.documents.documents import raise_errors
from webhook.documents.errors import InputError
from webhook.documents.policy_files import load_policy


@click.command(
    epilog="""\b
Exit status:
  0  no enforced findings
  1  enforced findings, reported on standard error; all manifests are printed, also the denied ones
  2  invalid input or usage; nothing is printed

\b
Examples:
  gpufence mutate train.yaml
  gpufence mutate --output json train.yaml | jq .spec.tolerations

\b
To apply the manifests only if none is denied (a pipe into kubectl does not wait for that):
  kustomize build . | gpufence mutate - > mutated.yaml && kubectl apply -f mutated.yaml
""",
)
@paths_argument
@exclude_option
@policy_option
@namespace_option
@cluster_context_options
@click.option(
    "--output",
    "-o",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="YAML documents, or a sequence of JSON values.",
)
def mutate(
    paths: tuple[str, ...],
    exclude: tuple[str, ...],
    policy_choice: PolicyChoice,
    namespace: str,
    cluster_context: ClusterContext,
    output: str,
) -> int:
    """Print manifests with the mutations that the webhook makes.

    PATH is a file, a directory (every .yaml, .yml and .json below it, without hidden files), a
    pattern ('apps/*/deploy'), or - for standard input. All documents are printed in their order,
    unchanged ones as well. Keys keep their order. Comments are dropped, and anchors are expanded.
    """
    policy_choice.announce()
    policy = load_policy(policy_choice.path)
    manifests = read_manifests(paths, Exclusion(exclude))
    request = Request(namespace=namespace, today=datetime.now(UTC).date())
    with cluster_context.facts(policy) as complete:
        results = list(evaluate(manifests, policy, request, complete))
    raise_errors((result.manifest.document, result.error) for result in results)
    if not results:
        raise InputError([no_objects_message(paths)])
    write_documents(mutated_documents(results), as_json=output == "json")
    return report_denied(results)

"""``gpufence mutate``: manifests as the cluster will get them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.errors import InputError
from webhook.cli.options.cluster_context import cluster_context_options
from webhook.cli.options.common import (
    exclude_option,
    namespace_option,
    paths_argument,
    policy_option,
)

# What mutating needs is imported where it is used: help and completion need none of it.
if TYPE_CHECKING:
    from webhook.cli.options.cluster_context import ClusterContext
    from webhook.cli.policy.policy_choice import PolicyChoice


@click.command(
    epilog="""\b
Exit status:
  0  nothing that the policy enforces was found
  1  something was: standard error says what, and the manifests are printed all the same, those
     that are refused among them
  2  the input or the usage is at fault: nothing is printed

\b
Examples:
  gpufence mutate train.yaml
  gpufence mutate --output json train.yaml | jq .spec.tolerations

\b
To apply what is printed where nothing is refused (a pipe into kubectl would not wait):
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
    help="YAML documents, or JSON values one after the other.",
)
def mutate(
    paths: tuple[str, ...],
    exclude: tuple[str, ...],
    policy_choice: PolicyChoice,
    namespace: str,
    cluster_context: ClusterContext,
    output: str,
) -> int:
    """Print manifests with what the webhook would add to their Pods.

    PATH is a file, a folder (every .yaml, .yml and .json below it, hidden ones aside), a pattern
    ('apps/*/deploy') or - for the standard input. Documents come out in the order in which they go
    in, Lists as Lists, unchanged ones too. Keys keep their order. Comments are not kept, and
    anchors are written out.
    """
    from policies.facts import Request
    from webhook.cli.manifests.evaluate import evaluate, no_objects_message, read_manifests
    from webhook.cli.manifests.exclusion import Exclusion
    from webhook.cli.manifests.mutated import mutated_documents, report_denied
    from webhook.cli.manifests.sentence import sentence
    from webhook.cli.manifests.yaml_writer import to_yaml
    from webhook.cli.policy.policy_file import compiled_policy
    from webhook.cli.wording import printable

    policy_choice.announce()
    policy = compiled_policy(policy_choice.path)
    manifests = read_manifests(paths, Exclusion(exclude))
    request = Request(namespace=namespace, today=datetime.now(UTC).date())
    with cluster_context.facts(policy) as complete:
        results = list(evaluate(manifests, policy, request, complete))
    if broken := [result for result in results if result.error is not None]:
        raise InputError(
            printable(sentence(result.manifest.document, error))
            for result in broken
            if (error := result.error) is not None
        )
    if not results:
        raise InputError([no_objects_message(paths)])
    documents = mutated_documents(results)
    text = _to_json(documents) if output == "json" else "---\n".join(map(to_yaml, documents))
    sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()
    return report_denied(results)


def _to_json(documents: Iterable[Any]) -> str:
    import json

    return "".join(f"{json.dumps(d, indent=2, ensure_ascii=False)}\n" for d in documents)

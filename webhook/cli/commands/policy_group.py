"""``gpufence policy``: show, validate and describe the policy document."""

from __future__ import annotations

import click

from webhook.cli.lazy import SuggestingGroup


@click.group(cls=SuggestingGroup)
def policy() -> None:
    """Show, validate and describe policies (kind: FencePolicy)."""


@policy.command(
    epilog="""\b
Examples:
  gpufence policy show > policy.yaml
  gpufence policy show --policy policy.yaml
""",
)
@click.option(
    "--policy",
    "policy_path",
    metavar="FILE",
    help="Show this one, if it is valid; without it, the policy that ships with gpufence.",
)
def show(policy_path: str | None) -> None:
    """Print a policy with its comments."""
    from webhook.cli.policy.policy_file import load_policy, policy_text

    load_policy(policy_path)
    click.echo(policy_text(policy_path), nl=False)


@policy.command(
    epilog="""\b
Exit status:
  0  the policy is valid
  2  it is not: standard error says where, why, and what is accepted

\b
Examples:
  gpufence policy validate policy.yaml
  gpufence policy show | gpufence policy validate -
""",
)
@click.argument("file")
def validate(file: str) -> None:
    """Check a policy document; FILE may be - for the standard input."""
    from webhook.cli.policy.policy_file import load_policy, policy_name

    pools = [pool.name for pool in load_policy(file).pools]
    plural = "s"[len(pools) == 1 :]
    click.echo(f"{policy_name(file)}: valid, with {len(pools)} pool{plural}: {', '.join(pools)}")


@policy.command(
    epilog="""\b
Examples:
  gpufence policy schema > fencepolicy.schema.json
""",
)
def schema() -> None:
    """Print the JSON schema of policies, for editors and CI."""
    import json

    from policies.document.model import FencePolicy

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    click.echo(json.dumps(dialect | FencePolicy.model_json_schema(by_alias=True), indent=2))

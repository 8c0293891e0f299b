"""A page for each rule, as ``gpufence explain`` shows it."""

from __future__ import annotations

from collections.abc import Iterable

from gpufence_docs.tables import table
from policies.registry import CHECKS, MUTATIONS, RULES, Rule
from policies.shipped import shipped_policy
from webhook.tools.cli.commands.explain import rule_markdown


def pages() -> dict[str, str]:
    """Return the page of each rule by its name."""
    policy = shipped_policy()
    return {rule.id: rule_markdown(rule, policy, "default") for rule in RULES}


def markdown() -> str:
    """Return the list of all rules, with links to their pages."""
    names = "\n".join(rule.id for rule in RULES)
    return (
        "## Mutations\n\nA mutation adds to Pods. `assigned-devices` also removes variables.\n\n"
        f"{_list(MUTATIONS)}\n"
        "## Checks\n\nA check returns findings.\n\n"
        f"{_list(CHECKS)}\n"
        f"```{{toctree}}\n:hidden:\n:glob:\n\n{names}\n```\n"
    )


def _list(rules: Iterable[Rule]) -> str:
    rows = [(f"[`{rule.id}`]({rule.id}.md)", rule.title, f"`{rule.default}`") for rule in rules]
    return table(("rule", "subject", "default"), rows)

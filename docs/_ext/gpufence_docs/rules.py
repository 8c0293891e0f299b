"""A page for each rule, as ``gpufence explain`` shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpufence_docs import playground
from gpufence_docs.tables import table
from policies.registry import CHECKS, MUTATIONS, RULES, Rule
from policies.shipped import shipped_policy
from webhook.tools.cli.commands.explain import rule_markdown


def pages() -> dict[str, str]:
    """Return the page of each rule by its name."""
    policy = shipped_policy()
    return {rule.id: _tried(rule_markdown(rule, policy, "default")) for rule in RULES}


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


def _tried(page: str) -> str:
    """Return a page with a link to the playground below each manifest."""

    def with_link(block: re.Match[str]) -> str:
        if not re.search(r"^kind:", block[1], re.MULTILINE):
            return block[0]
        address = f"../playground.html{playground.fragment(block[1])}"
        return f'{block[0]}\n```{{raw}} html\n<p><a href="{address}">Try it</a></p>\n```\n'

    return re.sub(r"^```yaml\n(.*?)^```\n", with_link, page, flags=re.MULTILINE | re.DOTALL)


def _list(rules: Iterable[Rule]) -> str:
    rows = [(f"[`{rule.id}`]({rule.id}.md)", rule.title, f"`{rule.default}`") for rule in rules]
    return table(("rule", "subject", "default"), rows)

"""Rule pages, for terminals, pipes and wikis."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from policies.document.suggestions import did_you_mean
from policies.policy import Policy
from policies.registry import Check, Mutation
from webhook.cli.report import terminal
from webhook.cli.report.text import Line
from webhook.wording import printable

Rule = Mutation | Check
Output = Literal["text", "markdown"]

_FENCE = "```"
_CODE_INDENT = "    "


def unknown(name: str, rules: Sequence[str]) -> str:
    """Return the message about a name that is neither a rule nor a file."""
    containing = [rule for rule in rules if name and name.lower() in rule]
    near = did_you_mean(name, rules) or (containing and f"Did you mean {' or '.join(containing)}?")
    cure = near or "To list the rules, run gpufence explain. To explain a file, check its path."
    return f"{printable(name)} is neither a rule nor a file. {cure}"


def write_list(
    rules: Iterable[Rule],
    policy: Policy,
    namespace: str,
    output: Output,
    color: terminal.Color,
) -> None:
    """Write a line for each rule: its name, its action, and the title of its page."""
    rows = [(rule.id, policy.actions_in(namespace)[rule.id], _title(rule)) for rule in rules]
    if output == "markdown":
        table = ["| rule | action | |", "| --- | --- | --- |"]
        sys.stdout.writelines(
            f"{line}\n" for line in [*table, *(f"| {r} | {a} | {t} |" for r, a, t in rows)]
        )
        return
    width = max(len(rule) for rule, _, _ in rows)
    lines = [
        Line(((f"{rule:{width}}  ", "rule"), (f"{action:7}  ", "aside"), (title, "")))
        for rule, action, title in rows
    ]
    terminal.write(lines, sys.stdout, color)


def write(
    rule: Rule, policy: Policy, namespace: str, output: Output, color: terminal.Color
) -> None:
    """Write a rule's page, with its action in the policy."""
    page = markdown(rule, policy, namespace)
    if output == "markdown":
        sys.stdout.write(page)
    elif sys.stdout.isatty() or terminal.resolve_color(color, sys.stdout) == "always":
        _write_styled(page, terminal.resolve_color(color, sys.stdout))
    else:
        sys.stdout.writelines(f"{line}\n" for line in plain(page))


def markdown(rule: Rule, policy: Policy, namespace: str) -> str:
    """Return a rule's page as Markdown: name, docstring and action."""
    what = (
        "mutation: it adds fields to Pods"
        if isinstance(rule, Mutation)
        else "check: it returns findings"
    )
    action = policy.actions_in(namespace)[rule.id]
    here = "" if action == rule.default else f" The policy sets it to `{action}`."
    return (
        f"# {rule.id}\n\n{rule.page.strip()}\n\n## Action\n\n"
        f"The rule is a {what}. Its default action is `{rule.default}`.{here}\n"
    )


def plain(page: str) -> Iterator[str]:
    """Yield the lines of a page as in a manual: plain headings, indented code."""
    in_code = False
    for line in page.splitlines():
        if line.startswith(_FENCE):
            in_code = not in_code
        elif in_code:
            yield f"{_CODE_INDENT}{line}".rstrip()
        elif heading := re.fullmatch(r"#+ (.*)", line):
            yield heading[1].upper() if line.startswith("## ") else heading[1]
        else:
            yield line


def _write_styled(page: str, color: terminal.Color) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(
        file=sys.stdout,
        force_terminal=True if color == "always" else None,
        no_color={"auto": None, "always": False, "never": True}[color],
    )
    console.print(Markdown(page, code_theme="ansi_dark"))


def _title(rule: Rule) -> str:
    return rule.page.partition("\n")[0]

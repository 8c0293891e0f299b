"""The comment about a policy: what no name in it can do."""

from __future__ import annotations

from webhook.tools.cli.policy_diff.comparison import Comparison
from webhook.tools.cli.report import markdown


def test_markdown_mentions_and_links_in_names_are_escaped() -> None:
    names = {
        "@everyone": "@\u200beveryone",
        "<img src=x>": "\\<img src=x\\>",
        "a`@b": "a\\`@\u200bb",
        "a|b": "a\\|b",
        "a\\|[x](y)": "a\\\\\\|\\[x\\]\\(y\\)",
        "https://b.example": "https:\u200b//b.example",
        "www.b.example": "www\u200b.b.example",
        "b/c#12 gh-3": "b/c\\#\u200b12 gh\\-\u200b3",
        "a\nb": "a\\\\nb",
    }
    comment = "".join(markdown.diff(Comparison(False, [], [], [*names])))
    assert comment.split("\n\n", 1)[0] == "### What the change of the policy does"
    for shown in names.values():
        assert f"\n{shown}.\n" in comment

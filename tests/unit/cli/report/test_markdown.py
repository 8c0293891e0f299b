"""The Markdown table: what it says, what it leaves out, and what a manifest cannot do in it."""

from __future__ import annotations

from running import TRESPASSER, Run
from webhook.tools.cli.report import markdown


def rows(out: str) -> list[list[str]]:
    table = [line for line in out.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in table[2:]]


def test_the_report_is_truncated_to_the_comment_length_of_github(gpufence: Run) -> None:
    text = "---\n".join([TRESPASSER] * 400)
    out = gpufence("check", "--output", "markdown", "-", stdin=text).out
    assert len(out) <= markdown.MAX_CHARACTERS
    shown = len(rows(out))
    assert 100 < shown < 400
    assert out.endswith(
        f"\nOmitted: {400 - shown} more rows, because a comment holds 65,536 characters.\n"
    )


def test_markdown_mentions_and_links_in_names_are_escaped(gpufence: Run) -> None:
    names = {
        "@everyone": "`Deployment default/@everyone`",
        "<img src=x>": "`Deployment default/<img src=x>`",
        "a`@b": "Deployment default/a\\`@\u200bb",
        "a|@b": "Deployment default/a\\|@\u200bb",
        "a\\\\|[x](y)": "Deployment default/a\\\\\\|\\[x\\]\\(y\\)",
        "a`https://b.example": "Deployment default/a\\`https:\u200b//b.example",
        "a`www.b.example": "Deployment default/a\\`www\u200b.b.example",
        "a`b/c#12 gh-3": "Deployment default/a\\`b/c\\#\u200b12 gh\\-\u200b3",
        "a\\nb": "`Deployment default/a\\nb`",
    }
    text = "---\n".join(TRESPASSER.replace("name: web\ns", f'name: "{name}"\ns') for name in names)
    out = gpufence("check", "--output", "markdown", "-", stdin=text).out
    rows = [f"| enforce | {shown} | `pool-trespass` |" for shown in names.values()]
    assert not [row for row in rows if row not in out]

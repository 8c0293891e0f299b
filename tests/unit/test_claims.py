"""Each claim of the first pages stands next to a test that fails if it becomes false.

A sentence that is added to these parts needs an entry in claims.yaml. The tables of the pages about
outages and threats have tests of their own.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import yaml

from paths import CHART, PROJECT
from webhook.tools.cli.main import cli

PARTS = {
    "README.md": "## See it",
    "docs/index.md": "## Where to go next",
    "deploy/helm/gpufence/README.md": "- [What changes",
    "docs/concepts/outages.md": "## What happens in an outage",
}
"""The pages, and the text before which their claims end."""
LISTED = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())
CLAIMS = {each["claim"] for each in LISTED if "page" not in each}


def sentences(page: str) -> list[str]:
    """Return the sentences and the rows of tables of the part of a page, without markup."""
    text = (PROJECT / page).read_text().partition(PARTS[page])[0]
    text = re.sub(r"(?ms)^---\n.*?^---\n|^```.*?^```$|<!--.*?-->", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?m)^(#|:|\{|\| ---|\| Pod,).*$", "", text)
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=- |\|)", text):
        words = " ".join(block.strip().replace("**", "").removeprefix("- ").split())
        found += (
            [words] if words.startswith("|") else re.split(r"(?<=[.:]) (?=[A-Z`])(?!Fail`)", words)
        )
    return [sentence for sentence in found if sentence]


def test_each_sentence_of_the_first_pages_is_a_claim_with_a_test() -> None:
    written = [sentence for page in PARTS for sentence in sentences(page)]
    assert [sentence for sentence in written if sentence not in CLAIMS] == []
    assert [claim for claim in CLAIMS if claim not in written] == []


def test_a_claim_of_another_page_is_there() -> None:
    elsewhere = [each for each in LISTED if "page" in each]
    texts = {each["page"]: (PROJECT / each["page"]).read_text() for each in elsewhere}
    texts = {page: " ".join(text.replace("\n> ", " ").split()) for page, text in texts.items()}
    assert [each for each in elsewhere if each["claim"] not in texts[each["page"]]] == []


def test_each_command_that_a_sentence_names_exists() -> None:
    pages = [*PROJECT.glob("docs/**/*.md"), *PROJECT.glob("webhook/tools/cli/rules/*.md")]
    pages += [PROJECT / "README.md", CHART / "README.md"]
    # A message, the page that explains the reference, and what other versions had.
    spans = {
        (page.name, span)
        for page in pages
        if not {"decisions", "changelog.md"} & set(page.parts)
        for span in re.findall(r"`gpufence (?!cannot |COMMAND)([^`\n]+)`", page.read_text())
    }
    assert [span for span in spans if not is_here(span[1])] == []


def is_here(span: str) -> bool:
    """Return whether a command and its options exist, such as ``check --fix FILE``."""
    command: click.Command = cli
    words = span.split()
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            return False
        command = found
    options = {option for each in command.params for option in each.opts} | {"--help"}
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    return not isinstance(command, click.Group) and named <= options


def test_no_command_that_the_changelog_calls_removed_is_here() -> None:
    changes = (PROJECT / "CHANGELOG.md").read_text()
    entries = "".join(re.findall(r"(?ms)^### Removed\n(.*?)(?=^##)", changes))
    assert not [span for span in re.findall(r"(?m)^- `gpufence ([^`]+)`", entries) if is_here(span)]
    targets = re.findall(r"(?m)^([a-z-]+):", (PROJECT / "Makefile").read_text())
    assert not set(targets).intersection(re.findall(r"(?m)^- `make ([a-z-]+)", entries))


def test_each_test_of_a_claim_runs() -> None:
    for name in {name for each in LISTED for name in each.get("tests", [])}:
        path, _, function = name.partition("::")
        tree = ast.parse((PROJECT / "tests" / path).read_text())
        defined = {
            node.name: [ast.unparse(each) for each in node.decorator_list]
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        assert function in defined, name
        assert not [each for each in defined[function] if "skip(" in each], name

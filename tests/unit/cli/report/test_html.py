"""The page of a report: what it says, and that nothing that it shows can act on its reader."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

from audit.fleet import LABELS, TAINT, pod_spec
from audit.simulated import Cluster, pod
from controlplane.objects import node
from each import each
from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.editor import PatchOperation
from webhook.documents.document import Document
from webhook.documents.objects import Manifest
from webhook.tools.audit.waste import Window, waste
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report import html
from webhook.tools.cli.report.content import AuditReport, results_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "<!--",
    "]]><svg/onload=alert(1)>",
    "&lt;script&gt;",
    "javascript:alert(1)",
    "\u202egnp.exe",
    "\x00\x1b[31m",
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and the text outside of style and script.

    `attributes` are the names of all attributes. `acting` are the attributes and elements that act,
    or that load something.
    """

    ACTING = ("script", "iframe", "object", "embed", "link", "img", "base")

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.acting: list[str] = []
        self.attributes: list[str] = []
        self.words = ""
        self._inside = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self._inside = tag
        self.attributes += [name for name, _ in attrs]
        if tag in self.ACTING:
            self.acting.append(tag)
        self.acting += [
            name
            for name, value in attrs
            if name.startswith("on")
            or name in ("src", "style", "srcset", "formaction")
            or (name == "href" and not str(value).startswith("#"))
        ]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.words += data


def hostile_result(string: str) -> Result:
    """Return a result that has the string wherever a string can stand."""
    obj = {
        "apiVersion": "v1",
        "kind": string,
        "metadata": {"name": string, "namespace": string, "annotations": {string: string}},
    }
    changed = (PatchOperation("/spec", {string: string}),)
    finding = Finding(string, string, string, string, string)
    document = Document(1, "", path=string)
    manifest = Manifest(document, None, (), 1, obj)
    return Result(manifest, "denied", Decision(obj, changed, findings=(finding,)), string)


def page_of(policy: str, results: list[Result]) -> str:
    """Return the page of an audit of an empty cluster, with these results."""
    audit = asyncio.run(Cluster().audit())
    return "".join(html.audit(AuditReport(policy, NOW, results, audit=audit, cluster="none")))


def test_no_string_of_a_manifest_becomes_markup() -> None:
    harmless = Page(page_of("x", [hostile_result("x")]))

    def is_text(string: str) -> None:
        source = page_of(string, [hostile_result(string)])
        page = Page(source)
        assert page.elements == harmless.elements
        assert page.acting == []
        assert page.attributes == harmless.attributes
        assert string in page.words or any(ord(char) < 32 or ord(char) > 8000 for char in string)
        assert not re.search("[\x00-\x08\x1b\u202e]", source)

    each(HOSTILE, is_text)


async def test_no_name_in_an_audited_cluster_becomes_markup() -> None:
    cluster = Cluster()
    gpus = {"nvidia.com/gpu": "8"}
    hostile = HOSTILE[1]
    cluster.add("Node", node(hostile, labels=LABELS, taints=[TAINT], resources=gpus))
    cluster.add("Pod", pod(f"a{hostile}", pod_spec(2), node=hostile, namespace=hostile))
    cluster.add("Pod", pod(f"b{hostile}", pod_spec(), node=hostile, namespace=hostile))
    audit = await cluster.audit()
    rows = waste(audit.pools, Window(0.0, NOW.timestamp()))
    content = AuditReport(
        hostile, NOW, list(results_of(audit)), audit=audit, cluster=hostile, waste=rows
    )
    assert {row.kind for row in rows} == {"held", "notReady"}
    page = Page("".join(html.audit(content)))
    # The findings' rules link to their pages.
    assert page.acting == ["href"] * page.acting.count("href")
    assert page.words.count(hostile) > 5


def test_the_content_security_policy_allows_only_the_inline_style() -> None:
    source = page_of("default", [hostile_result("pool-trespass")])
    [style] = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    [policy] = re.findall(r'Content-Security-Policy" content="(.*?)"', source)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert "script" not in policy
    assert "unsafe" not in policy
    links = re.sub(
        r'<a href="https://gpufence.dev/rules/[a-z-]+.html" rel="noreferrer"', "", source
    )
    assert "http" not in links.replace("Content-Security-Policy", "").replace("http-equiv", "")


async def test_the_page_shows_every_device_with_its_pod() -> None:
    cluster = Cluster()
    cluster.fill(200, 48, 3000)
    audit = await cluster.audit()
    assert audit.pods == 3000
    source = "".join(
        html.audit(AuditReport("x", NOW, list(results_of(audit)), audit=audit, cluster="x"))
    )
    cells = "".join(re.findall('<div class="cells".*?</div>', source, re.DOTALL))
    assert (cells.count('class="device '), cells.count('class="device free')) == (48 * 8, 112)
    first = Page(source.partition('<li class="node')[2].partition('<li class="node')[0]).words
    for text in ("gpu-1", "no taint", "ml-vision/train-1-0-x7k2p", "▲ trespasser"):
        assert text in first
    assert "batch/debug-shell" in first

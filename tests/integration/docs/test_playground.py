"""The playground in a real browser: its verdicts are those of the command line."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sphinx.errors import ExtensionError

import browser as chromium
from browser import Browser
from controlplane import cache
from controlplane.poll import until
from each import each
from gpufence_docs import playground
from paths import PROJECT
from running import Run
from specs import fence_policy

SECONDS = 200
"""How long a busy machine may take to load Python."""
STATE = """
const text = (element, selector) => element.querySelector(selector)?.textContent ?? "";
return {
  busy: document.getElementById("results").ariaBusy,
  verdict: document.getElementById("verdict").textContent,
  objects: [...document.querySelectorAll(".object")].map(object => ({
    verdict: text(object, ".verdict"),
    findings: [...object.querySelectorAll(".finding")].map(finding => [
      text(finding, ".rule"), text(finding, ".action"), text(finding, "button.line"),
    ]),
    error: text(object, ".error"),
    changes: text(object, ".difference"),
    scheduling: [...object.querySelectorAll("details")]
      .filter(each => text(each, "summary").startsWith("Scheduling"))
      .map(each => text(each, ".explanation")).join(" "),
  })),
  errors: [...document.querySelectorAll("#objects > .error")].map(each => each.textContent),
  marked: [...document.querySelectorAll("#manifest-editor .numbers .enforce")]
    .map(each => Number(each.textContent)),
};
"""
SET = """
const [id, value] = arguments;
const field = document.querySelector(id);
field.value = value;
field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input", {bubbles: true}));
document.getElementById("results").ariaBusy = "true";
"""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of the page. Tests that open it are skipped if there is no browser."""
    if reason := chromium.unavailable():
        pytest.skip(f"no browser here: {reason}")
    with chromium.served(site) as url:
        yield f"{url}/playground.html"


@pytest.fixture(scope="module")
def loaded(address: str) -> Iterator[Browser]:
    """The browser with the playground: Python is loaded once for all tests.

    Its first page is a damaged link, which a sample repairs.
    """
    shown = "return document.getElementById('verdict').textContent"
    with chromium.browser() as window:
        window.open(f"{address}#1=AAAA")
        until(lambda: "damaged" in window.run(shown), "the message about the link")
        assert window.run(STATE)["busy"] == "false"
        assert edit(window, "#sample", "web")["verdict"] == "Allowed, without changes"
        yield window


def settled(window: Browser) -> dict[str, Any]:
    """Wait for the verdict on the last edit, and return what the page shows."""
    state: dict[str, Any] = {}

    def is_settled() -> bool:
        state.update(window.run(STATE))
        return bool(state["busy"] == "false")

    until(is_settled, "the verdict", within=SECONDS)
    return state


def edit(window: Browser, selector: str, value: str) -> dict[str, Any]:
    window.run(SET, selector, value)
    return settled(window)


def follow(window: Browser, fragment: str) -> None:
    """Follow a link to another state of the same page."""
    window.run("document.getElementById('results').ariaBusy = 'true'")
    window.run("location.hash = arguments[0]", fragment)


@pytest.mark.slow("starts Python in a browser")
def test_a_sample_has_the_verdict_of_the_command_line(
    loaded: Browser, gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "nodes.yaml").write_text(playground.data()["nodes"])
    verdicts = set()

    def is_the_same(sample: dict[str, Any]) -> None:
        (tmp_path / "manifest.yaml").write_text(sample["manifest"])
        options = ["--nodes", "nodes.yaml"] if sample.get("nodes") else []
        if "policy" in sample:
            (tmp_path / "policy.yaml").write_text(playground.data()["policies"][sample["policy"]])
            options += ["--policy", "policy.yaml"]
        done = gpufence("check", "--output", "json", *options, "manifest.yaml")
        verdicts.update(done.verdicts)
        shown = edit(loaded, "#sample", sample["name"])
        assert [each["verdict"] for each in shown["objects"]] == done.verdicts
        for one, other in zip(shown["objects"], done.report["results"], strict=True):
            found = [[f["rule"], f["action"], f"line {f['line']}"] for f in other["findings"]]
            assert one["findings"] == found
            assert bool(one["changes"]) is bool(other["patch"])
            assert bool(one["error"]) is ("error" in other)
            if "error" in other:  # The words are those of PyYAML here, and of libyaml there.
                assert shown["marked"] == [int(other["error"].split(":")[1])]

    each(playground.data()["samples"], is_the_same)
    assert verdicts >= {"allowed", "mutated", "denied", "invalid"}


def test_nodes_show_where_the_pod_fits(loaded: Browser) -> None:
    [job] = edit(loaded, "#sample", "gpu-job")["objects"]
    assert "It fits 3 of 3 nodes of pool nvidia" in job["scheduling"]
    assert "nvidia.com/gpu.present" in job["changes"]


def test_a_verdict_that_needs_nodes_says_so(loaded: Browser) -> None:
    edit(loaded, "#sample", "node-name")
    edit(loaded, "#nodes-editor textarea", "")
    note = loaded.run("return document.querySelector('#objects .missing').textContent")
    assert "the webhook also checks whether spec.nodeName is a GPU node" in note


def test_broken_yaml_is_marked_at_its_line(loaded: Browser) -> None:
    shown = edit(loaded, "#manifest-editor textarea", "kind: Pod\nspec: [\n")
    assert "invalid" in shown["verdict"].lower()
    assert shown["marked"] != []
    shown = edit(loaded, "#manifest-editor textarea", "")
    assert shown["errors"] == ["no objects in manifest.yaml. Write a manifest, or choose a sample."]


def test_the_text_of_a_manifest_never_becomes_html(loaded: Browser) -> None:
    """A link shows the manifest of its author, in errors, findings, changes and explanations."""
    html = "<img src=x onerror='globalThis.stolen=1'><script>globalThis.stolen=1</script>"
    edit(loaded, "#sample", "gpu-job")
    sample = loaded.run("return document.querySelector('#manifest-editor textarea').value")
    hostile = {"kind": html, "metadata": {"name": html}, "apiVersion": html}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": html, "namespace": html}}
    key = {"key": html, "operator": "Exists"}
    spec = {"containers": [{"name": html, "image": html}], "nodeName": html, "tolerations": [key]}
    documents = [hostile, {**pod, "spec": spec}, {**pod, "spec": {html: html}}, {html: html}]
    text = "\n---\n".join([sample.replace("nvidia.com/gpu", html), yaml.safe_dump_all(documents)])
    for selector, value in (
        ("#manifest-editor textarea", text),
        ("#namespace", html),
        ("#policy-editor textarea", f"kind: {html}"),
        ("#manifest-editor textarea", f"{html}: ["),
    ):
        edit(loaded, selector, value)
        assert loaded.run("return globalThis.stolen ?? 0") == 0
        assert (
            loaded.run(
                "return document.querySelectorAll('#playground :is(img, script:not([src]))').length"
            )
            == 0
        )
    follow(loaded, f"#sample={html}")
    settled(loaded)
    assert loaded.run("return globalThis.stolen ?? 0") == 0


def test_an_invalid_policy_is_reported_with_its_line(loaded: Browser) -> None:
    edit(loaded, "#sample", "web")
    policy = yaml.safe_dump(fence_policy({"pools": 3}), sort_keys=False)
    shown = edit(loaded, "#policy-editor textarea", policy)
    assert shown["verdict"] == "The policy is invalid"
    assert shown["errors"][0].startswith("policy.yaml line 6 spec.pools: ")
    assert loaded.run("return document.getElementById('policy').value") == "own"


def test_a_link_shows_the_same_case(loaded: Browser) -> None:
    edit(loaded, "#sample", "web-on-gpu-nodes")
    manifest = loaded.run("return document.querySelector('#manifest-editor textarea').value")
    edited = manifest.replace("nvidia.com/gpu", "dedicated") + "# Grüße, 世界\n"
    edit(loaded, "#manifest-editor textarea", edited)
    edit(loaded, "#policy", "amd")
    before = edit(loaded, "#namespace", "ml")
    link = loaded.run("return location.hash")
    assert link.startswith("#1=")
    edit(loaded, "#sample", "web")
    follow(loaded, link)
    after = settled(loaded)
    assert after == before
    values = """return ["#manifest-editor textarea", "#policy", "#namespace"]
      .map(selector => document.querySelector(selector).value)"""
    assert loaded.run(values) == [edited, "amd", "ml"]
    edit(loaded, "#sample", "gpu-job")
    assert loaded.run("return location.hash") == "#sample=gpu-job"


def test_a_rule_page_links_to_its_manifests(loaded: Browser, site: Path) -> None:
    page = (site / "rules" / "pool-trespass.html").read_text()
    links = re.findall(r'href="\.\./playground\.html(#1=[^"]+)">Try it<', page)
    assert len(links) >= 2
    follow(loaded, links[0])
    [denied] = settled(loaded)["objects"]
    assert [finding[0] for finding in denied["findings"]] == ["pool-trespass"]


WITHOUT_CLIENT = """
import json, sys
sys.modules["aiohttp"] = None
sys.path.insert(0, sys.argv[1] + "/docs/playground")
import engine
nodes = open("nodes.yaml").read()
print(json.loads(engine.discover(nodes))["policy"])
print(json.loads(engine.check("kind: Pod\\napiVersion: v1\\n", None, nodes, "ml"))["errors"])
"""


def test_the_engine_needs_no_library_that_the_page_lacks(tmp_path: Path, gpufence: Run) -> None:
    (tmp_path / "nodes.yaml").write_text(playground.data()["nodes"])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLIENT, str(PROJECT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == gpufence("policy", "discover", "--nodes", "nodes.yaml").out + "\n[]\n"


CLOCK = """
const clocks = [];
globalThis.setTimeout = (run) => clocks.push(run);
globalThis.Worker = class {
  constructor() { globalThis.worker = this; }
  postMessage() {}
  terminate() {}
};
const { Engine } = await import("%s");
const engine = new Engine(() => {});
const answers = ["check", "discover"].map((name) => engine.call(name).catch((e) => e.message));
const before = clocks.length;
worker.onmessage({ data: { progress: "Loading" } });
worker.onmessage({ data: { ready: true } });
const after = clocks.length;
clocks[0]();
console.log(JSON.stringify([before, after, await answers[0], await answers[1]]));
"""


def test_the_clock_of_a_call_starts_when_the_worker_is_loaded() -> None:
    assert node(CLOCK % (PROJECT / "docs" / "playground" / "engine.js")) == [
        0,
        2,
        "No answer within 60 s. The text may be too large.",
        "An earlier check took too long. Edit the text again.",
    ]


def test_discover_writes_the_policy_of_the_command_line(
    loaded: Browser, gpufence: Run, tmp_path: Path
) -> None:
    nodes = playground.data()["nodes"]
    (tmp_path / "nodes.yaml").write_text(nodes)
    expected = gpufence("policy", "discover", "--nodes", "nodes.yaml").out
    edit(loaded, "#sample", "gpu-job")
    loaded.run("document.getElementById('discover').click()")
    policy = "return document.querySelector('#policy-editor textarea').value"
    until(lambda: loaded.run(policy) == expected, "the discovered policy", within=SECONDS)
    assert settled(loaded)["objects"][0]["verdict"] == "mutated"


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark", "light"])
def test_the_page_fits_the_screen_with_sufficient_contrast(
    width: int, dark: bool, loaded: Browser
) -> None:
    loaded.resize(width, dark=dark)
    edit(loaded, "#sample", "too-many")
    assert loaded.run("return document.documentElement.scrollWidth") == width
    loaded.run("document.querySelectorAll('#playground details').forEach(e => e.open = true)")
    assert loaded.run("return document.documentElement.scrollWidth") == width
    low = loaded.low_contrast()
    assert [each for each in low if not each.startswith("TEXTAREA")] == []


def test_nothing_is_loaded_from_elsewhere(loaded: Browser, address: str) -> None:
    """Holds for the page load and for all tests above."""
    hosts = {url.partition("/playground")[0] for url in loaded.requests()}
    own = address.removesuffix("/playground.html")
    assert own in hosts
    assert {host for host in hosts if not host.startswith((own, "data:"))} == set()
    assert loaded.console() == []


def test_the_playground_runs_the_modules_of_the_project(site: Path) -> None:
    with zipfile.ZipFile(site / "playground" / "runtime" / "gpufence.whl") as wheel:
        packed = {name: wheel.read(name) for name in wheel.namelist()}
    own = {
        str(path.relative_to(PROJECT)): path.read_bytes()
        for package in ("policies", "webhook", "certs")
        for path in (PROJECT / package).rglob("*.py")
    }
    assert own.items() <= packed.items()


def test_a_runtime_with_another_digest_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\necho changed > pyodide-{playground.PYODIDE}.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(cache, "root", lambda: tmp_path / "cache" / "controlplane")
    with pytest.raises(ExtensionError, match="has the SHA-512 digest"):
        playground.downloaded()
    assert [path.suffix for path in (tmp_path / "cache" / "playground").iterdir()] == [".lock"]


def test_the_data_of_the_page_is_that_of_the_project(site: Path) -> None:
    assert json.loads((site / "playground" / "data.json").read_text()) == playground.data()


DECODE = """
import { text } from "node:stream/consumers";
import { decode } from "%s";
const before = process.memoryUsage().rss;
const found = await decode(await text(process.stdin)).catch((error) => error.name);
const mebibytes = Math.round((process.memoryUsage().rss - before) / 2 ** 20);
console.log(JSON.stringify({ found, mebibytes }));
"""


@pytest.mark.parametrize(
    ("text", "times", "found"),
    [
        (b"x", 1000, {"manifest": "x" * 1000}),
        (b"x", 300_000_000, "RangeError"),
        (b"\\n", 60_000, "RangeError"),
    ],
)
def test_a_link_expands_to_a_limited_size(text: bytes, times: int, found: Any) -> None:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    state = compressor.compress(b'{"manifest":"' + text * times + b'"}') + compressor.flush()
    fragment = f"#1={base64.urlsafe_b64encode(state).decode().rstrip('=')}"
    script = DECODE % (PROJECT / "docs" / "playground" / "link.js")
    result = node(script, fragment)
    assert result["found"] == found
    assert result["mebibytes"] < 100


COLORS = """
import { text } from "node:stream/consumers";
import { parts } from "%s";
const lines = JSON.parse(await text(process.stdin));
const colors = (line) => [...parts(line)].filter(([, name]) => name);
console.log(JSON.stringify(lines.map((line) => (line.length > 1000 ? [] : colors(line)))));
for (const line of lines) colors(line);
"""


def test_the_colors_of_a_line_take_a_time_that_grows_with_its_length() -> None:
    """A link of some kilobytes holds a line of a million characters."""
    usual = """  - name: 'a' # it's "b"\n{a: 1, "b": 'c''d'}\nargs: [don't, "say: \\\\"x"]"""
    hostile = ("a", " a", "a:", '"\\', '"', "'", " 1", "- ", "{a", ", ", "#", " ", "a: b")
    lines = [*usual.splitlines(), *(each * (2**20 // len(each)) for each in hostile)]
    found = node(COLORS % (PROJECT / "docs" / "playground" / "editor.js"), json.dumps(lines))
    assert found[:3] == [
        [["name", "key"], ["'a'", "string"], ['# it\'s "b"', "comment"]],
        [["a", "key"], ["1", "constant"], ['"b"', "string"], ["'c''d'", "string"]],
        [["args", "key"], ['"say: \\\\"', "string"]],
    ]


def node(script: str, text: str = "") -> Any:
    """Run a module, and return the JSON that it prints."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    done = subprocess.run(
        [program, "--input-type=module", "--eval", script],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)

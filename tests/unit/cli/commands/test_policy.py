"""`gpufence policy`: show, validate, schema."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from each import each
from policies.schema import SCHEMA_ID, schema_document
from policies.shipped import PRESETS, default_policy_text
from running import TRESPASSER, Run
from specs import default_spec, fence_policy, policy_of
from webhook.tools.cli.policy_diff.comparison import compare
from webhook.tools.cli.report import markdown

FAULTY = """\
apiVersion: gpufence.dev/v1beta1
kind: FencePolicy
metadata:
  name: gpufence
spec:
  pools:
  - name: nvidia
    resources: [nvidia.com/gpu]
    taint: []
    nodeSelector: {present: true}
  rules:
    pool-tresspass: warn
    device-leak: enforced
"""


def test_show_prints_each_preset_and_each_preset_is_valid(gpufence: Run) -> None:
    for preset in PRESETS.iterdir():
        shown = gpufence("policy", "show", "--preset", preset.stem)
        assert (shown.status, shown.err) == (0, "")
        assert gpufence("policy", "validate", "-", stdin=shown.out).status == 0


NOTE = "Note: whether replicas follow FencePolicy gpufence is not checked. Use --cluster.\n"


def test_validate_warns_of_a_setting_that_needs_the_cluster(gpufence: Run) -> None:
    by_label = "      allowedNamespaces: {matchLabels: {team: ml}}\n"
    text = default_policy_text().replace("      taints:\n", f"{by_label}      taints:\n", 1)
    done = gpufence("policy", "validate", "-", stdin=text)
    assert done.status == 0
    warning = "Warning: without the namespaces of the cluster, requests for pool nvidia are denied"
    assert warning in done.err
    assert gpufence("policy", "validate", "-", stdin=default_policy_text()).err == NOTE


def test_validate_warns_of_exceptions_that_cover_nothing(gpufence: Run) -> None:
    exceptions = """
  exceptions:
    - {namespaces: [legacy], reason: moving}
    - {namespaces: [legacy], reason: spring, expires: 2020-04-01}
    - {namespaces: [kube-system], reason: exempt}
    - {namespaces: [legacy, lab], rules: [missing-device], reason: it is off}
    - {namespaces: ["team-*"], rules: [missing-device], reason: on in one of them}
  overrides:
    - {namespaces: [legacy, lab], rules: {missing-device: off}}
"""
    done = gpufence("policy", "validate", "-", stdin=default_policy_text() + exceptions)
    assert done.status == 0
    cure = "Remove it, or change it"
    assert done.err.removeprefix(NOTE).splitlines() == [
        f"Warning: spec.exceptions[1] expired on 2020-04-01. {cure}.",
        f"Warning: spec.exceptions[2] covers nothing: its namespaces are exempt. {cure}.",
        f"Warning: spec.exceptions[3] covers nothing: its rules are off in its namespaces. {cure}.",
    ]


def test_validate_reports_every_error_with_its_line(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(FAULTY)
    done = gpufence("policy", "validate", "policy.yaml")
    assert (done.status, done.out) == (2, "")
    places = [line.partition(": ")[2].split(": ")[:2] for line in done.err.splitlines()]
    assert sorted(map(tuple, places)) == [
        ("policy.yaml:10", "spec.pools[0].nodeSelector[present]"),
        ("policy.yaml:12", "spec.rules[pool-tresspass]"),
        ("policy.yaml:13", "spec.rules[device-leak]"),
        ("policy.yaml:9", "spec.pools[0].taint"),
    ]
    assert all(line.startswith("Error: ") and line.endswith(".") for line in done.err.splitlines())


def test_the_schema_accepts_the_default_policy_and_rejects_an_invalid_policy() -> None:
    schema = schema_document()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(fence_policy(default_spec()), schema)
    assert schema["$id"] == SCHEMA_ID
    rules = schema["$defs"]["Policy"]["properties"]["rules"]["properties"]
    title = "Container that uses devices without requesting them."
    assert rules["device-leak"]["description"] == title
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(FAULTY), schema)


SMALL = """\
apiVersion: gpufence.dev/v1beta1
kind: FencePolicy
metadata: {name: gpufence}
spec:
  pools:
    - name: nvidia
      resources: [nvidia.com/gpu]
      taints: [{key: nvidia.com/gpu}]
      nodeSelector: {gpu: "true"}
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    (tmp_path / "old.yaml").write_text(SMALL)
    (tmp_path / "new.yaml").write_text(SMALL.replace("key: nvidia.com/gpu", "key: gpu"))
    (tmp_path / "pod.yaml").write_text(TRESPASSER)
    return tmp_path


def test_diff_exits_like_diff(gpufence: Run, two: Path) -> None:
    equal = gpufence("policy", "diff", "old.yaml", "old.yaml")
    assert (equal.status, equal.err) == (0, "")
    assert "The policies decide alike: they are equal, with defaults." in equal.out
    assert gpufence("policy", "diff", "-", "new.yaml", stdin=SMALL).status == 1
    for arguments, problem in {
        ("old.yaml",): "Name two policies. With --cluster, OLD is the live one by default.",
        ("old.yaml", "missing.yaml"): "missing.yaml",
        ("old.yaml", "new.yaml", "--cluster", "--dump", "d.json"): "exclude each other",
        ("old.yaml", "new.yaml", "--output", "json=new.yaml"): "overwrites the input",
    }.items():
        failed = gpufence("policy", "diff", *arguments)
        assert (failed.status, failed.out) == (2, ""), arguments
        assert problem in failed.err


OF_SPEC: dict[str, Any] = {
    "mode": "audit",
    "rules": {"pool-trespass": "warn"},
    "exceptions": [{"namespaces": ["ml"], "rules": ["pool-trespass"], "reason": "moves"}],
    "overrides": [{"namespaces": ["de*"], "mode": "audit"}],
    "hardening": {"runAsUser": 1000},
    "customWorkloads": [{"group": "ray.io", "resources": ["rayjobs"]}],
}
OF_POOL: dict[str, Any] = {
    "allowedNamespaces": {"names": ["ml"]},
    "taints": [{"key": "gpu"}],
    "nodeSelector": {"gpu": "other"},
    "resources": ["nvidia.com/gpu", "nvidia.com/l4"],
}
"""Changes of one field."""


def changed(field: str) -> str:
    """Return the policy with another value of a field."""
    policy = yaml.safe_load(SMALL)
    pool = policy["spec"]["pools"][0]
    if field in OF_POOL:
        pool[field] = OF_POOL[field]
    else:
        policy["spec"][field] = OF_SPEC[field]
    return yaml.safe_dump(policy)


def workloads(count: int) -> list[dict[str, Any]]:
    """Return workloads as API servers have them: some request a device, some trespass."""
    found = [yaml.safe_load(TRESPASSER) for _ in range(count)]
    for n, obj in enumerate(found):
        obj["metadata"] = {
            "name": f"web-{n}",
            "namespace": ("default", "ml")[n % 2],
            "uid": f"uid-{n}",
        }
        obj["status"] = {"replicas": 1, "conditions": [{"type": "Available", "status": "True"}]}
        spec = obj["spec"]["template"]["spec"]
        if n % 3:
            spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
        if n % 3 == 2:
            del spec["tolerations"]
    return found


def test_diff_of_one_field_fits_on_a_page_without_whole_objects(gpufence: Run, two: Path) -> None:
    facts = [("Namespace", "ml"), ("Namespace", "default"), ("Node", "n")]
    items = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} for kind, name in facts]
    dump = {"apiVersion": "v1", "kind": "List", "items": [*items, *workloads(50)]}
    (two / "dump.json").write_text(json.dumps(dump))

    def holds(field: str) -> None:
        (two / "new.yaml").write_text(changed(field))
        for source in (), ("--manifests", "dump.json"), ("--dump", "dump.json"):
            done = gpufence("policy", "diff", *source, "old.yaml", "new.yaml")
            assert (done.status, done.err) == (1, "")
            assert done.out.startswith("Changed fields:\n")
            assert len(done.out.splitlines()) <= 40
            assert not re.search("uid|status|conditions", done.out)

    each([*OF_SPEC, *OF_POOL], holds)


def test_diff_says_where_and_for_how_many(gpufence: Run, two: Path) -> None:
    (two / "new.yaml").write_text(changed("allowedNamespaces"))
    (two / "web.json").write_text(json.dumps({"kind": "List", "items": workloads(6)}))
    files = ("--manifests", "web.json", "old.yaml", "new.yaml")
    text = gpufence("policy", "diff", *files).out
    assert "pools[nvidia].allowedNamespaces: not set → {names: [ml], unknown: allow}\n" in text
    wanted = (
        r"Allowed before, denied now: 2 workloads \(Deployment default/web-2 \(web.json:1\), .*\); "
        r"\d+ classes of Pods outside of namespace ml, such as Pods that request 1 nvidia.com/gpu\."
    )
    assert re.search(wanted, text)
    verbose = gpufence("policy", "diff", "--verbose", *files).out
    assert "Deployment default/web-4 (web.json:1): mutated before, denied now\n" in verbose
    assert "    apiVersion: v1\n    kind: Pod\n" in verbose
    report = json.loads(gpufence("policy", "diff", "-o", "json", *files).out)
    assert not report["alike"]
    [field] = report["fields"]
    assert (field["path"], field["before"]) == ("pools[nvidia].allowedNamespaces", None)
    assert len(report["consequences"][0]["workloads"]) == 2
    comment = gpufence("policy", "diff", "-o", "markdown", *files).out
    assert "**What follows**\n\n- Allowed before, denied now: 2 workloads" in comment
    assert "```yaml\napiVersion: v1\nkind: Pod\n" in comment


def test_a_comment_about_a_policy_is_bounded_and_shows_names_as_text() -> None:
    pools = [{"name": "gpu", "resources": ["example.com/gpu"], "nodeSelector": {"gpu": "true"}}]
    users = {"exemptions": {"usernames": ["@all ```n **b**"]}}
    old, new = policy_of({"pools": pools}), policy_of({"pools": pools, **users})
    found = compare(old, new, datetime.now(UTC).date())
    assert any("@all ```n **b**" in str(each) for each in found.consequences)
    many = found._replace(
        consequences=found.consequences * 200, fields=found.fields * 2000, is_verbose=True
    )
    comment = "".join(markdown.diff(many))
    for what in ("changed field", "consequence", "example"):
        assert re.search(f"Omitted: [0-9,]+ {what}s?, because", comment)
    assert len(comment) < markdown.MOST_OF_DIFF == 60_000
    assert "@all" not in comment
    assert "**b**" not in comment

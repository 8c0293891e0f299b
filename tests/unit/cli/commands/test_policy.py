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

from policies.rules.check_unknown_device_resource import ACCELERATORS
from policies.schema import SCHEMA_ID
from policies.shipped import PRESETS, default_policy_text
from running import TRESPASSER, Run
from specs import default_spec, fence_policy, policy_of
from webhook.tools.cli.policy_diff.comparison import compare
from webhook.tools.cli.report import markdown

FAULTY = """\
apiVersion: gpufence.dev/v1alpha1
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


def test_show_prints_only_a_valid_policy_file(gpufence: Run, tmp_path: Path) -> None:
    text = f"# ours\n{default_policy_text()}"
    (tmp_path / "policy.yaml").write_text(text)
    assert gpufence("policy", "show", "--policy", "policy.yaml").out == text
    (tmp_path / "policy.yaml").write_text(FAULTY)
    done = gpufence("policy", "show", "--policy", "policy.yaml")
    assert (done.status, done.out) == (2, "")


def test_show_prints_each_preset_and_each_preset_is_valid(gpufence: Run, tmp_path: Path) -> None:
    for preset in PRESETS.iterdir():
        shown = gpufence("policy", "show", "--preset", preset.stem)
        assert (shown.status, shown.err) == (0, "")
        assert gpufence("policy", "validate", "-", stdin=shown.out).status == 0
    both = gpufence("policy", "show", "--preset", "amd", "--policy", "policy.yaml")
    assert (both.status, both.out) == (2, "")
    assert "--preset and --policy exclude each other." in both.err


def test_presets_of_accelerators_exist() -> None:
    named = {preset for preset in ACCELERATORS.values() if preset}
    assert named <= {preset.stem for preset in PRESETS.iterdir()}


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


def test_the_schema_accepts_the_default_policy_and_rejects_an_invalid_policy(gpufence: Run) -> None:
    schema: dict[str, Any] = json.loads(gpufence("policy", "schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(fence_policy(default_spec()), schema)
    assert schema["$id"] == SCHEMA_ID
    rules = schema["$defs"]["Policy"]["properties"]["rules"]["properties"]
    title = "Container that uses devices without requesting them."
    assert rules["device-leak"]["description"] == title
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(FAULTY), schema)


SMALL = """\
apiVersion: gpufence.dev/v1alpha1
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
    assert "The policies decide alike on every Pod in these respects" in equal.out
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


def test_diff_shows_the_smallest_pod_that_check_decides_differently(
    gpufence: Run, two: Path
) -> None:
    report = json.loads(gpufence("policy", "diff", "old.yaml", "new.yaml", "-o", "json").out)
    assert not report["equal"]
    [denied] = [
        each
        for each in report["differences"]
        if (each["before"], each["after"]) == ("allowed", "denied")
        and each["rules"][0]["rule"] == "pool-trespass"
    ]
    assert denied["sentence"].startswith("Allowed before, denied now: Pods that tolerate gpu")
    (two / "smallest.json").write_text(json.dumps(denied["smallest"][-1]))
    for policy, status in (("old.yaml", 0), ("new.yaml", 1)):
        assert gpufence("check", "--policy", policy, "smallest.json").status == status


def test_diff_names_the_workloads_whose_result_changes(gpufence: Run, two: Path) -> None:
    files = ("old.yaml", "new.yaml")
    text = gpufence("policy", "diff", "--manifests", "pod.yaml", *files).out
    assert re.search(
        r"Denied before, allowed now: Deployment default/web \(pod.yaml:1\)\.\n  pool-trespass: ",
        text,
    )
    assert "1 of 1 workload differs" in text
    (two / "dump.json").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}},
                    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
                    yaml.safe_load(TRESPASSER) | {"metadata": {"name": "web", "namespace": "ml"}},
                ],
            }
        )
    )
    comment = gpufence("policy", "diff", "--dump", "dump.json", "-o", "markdown", *files).out
    assert "**Denied before, allowed now: Deployment ml/web" in comment
    assert "```yaml\napiVersion: v1\nkind: Pod\n" in comment


def test_a_comment_about_a_policy_is_bounded_and_shows_names_as_text() -> None:
    pools = [{"name": "gpu", "resources": ["example.com/gpu"], "nodeSelector": {"gpu": "true"}}]
    users = {"exemptions": {"usernames": ["@all ```n **b**"]}}
    old, new = policy_of({"pools": pools}), policy_of({"pools": pools, **users})
    found = compare(old, new, datetime.now(UTC).date())
    assert any("@all ```n **b**" in each.sentence for each in found.differences)
    comment = "".join(markdown.diff(found._replace(differences=found.differences * 50)))
    assert "Omitted: " in comment
    assert len(comment) < markdown.MAX_CHARACTERS == 65_536
    assert "@all" not in comment
    assert "**b**" not in comment

"""Every rule has a documentation page that keeps what it promises."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from cases.loading import compiled, load_all, policy_spec
from paths import PROJECT
from policies import registry
from policies.catalog import DEFAULT_ACTIONS, TITLES
from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from policies.registry import CHECKS, RULES, Rule
from policies.schema import json_schema
from webhook.cluster.manifests import read_claims
from webhook.tools.cli.report.content import page_of

SCHEMA = json_schema(Policy)
CHECK_PAGE = ["What it checks", "Why", "Denied", "Use instead", "Settings"]
MUTATION_PAGE = ["Why", "Before", "After", "Settings"]

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
each_mutation = pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.is_mutation], ids=lambda rule: rule.id
)
each_check = pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.id)
LABELS = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-L4"}
GPU_NODE = Node("gpu-1", LABELS, (), {"nvidia.com/gpu": 8})
SHARED = {"nvidia.com/gpu.shared": 10, "nvidia.com/mig-1g.10gb": 7}
SHARED_NODE = Node("gpu-2", LABELS, (), SHARED)


def test_rule_ids_are_in_kebab_case() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", rule) for rule in TITLES)


@each_rule
def test_a_module_has_the_id_of_its_rule_as_its_name_and_the_title_as_its_docstring(
    rule: Rule,
) -> None:
    function = rule.changes if rule.is_mutation else rule.check
    prefix = "set" if rule.is_mutation else "check"
    assert function.__module__ == f"policies.rules.{prefix}_{rule.id.replace('-', '_')}"
    assert sys.modules[function.__module__].__doc__ == rule.title


def test_the_catalog_has_exactly_the_rules_in_their_order() -> None:
    assert [*TITLES] == [*DEFAULT_ACTIONS] == [rule.id for rule in RULES]


def test_every_rule_module_is_registered_and_has_a_page(pytestconfig: pytest.Config) -> None:
    directory = pytestconfig.rootpath / "policies" / "rules"
    modules = {file.stem for file in [*directory.glob("set_*.py"), *directory.glob("check_*.py")]}
    assert modules <= set(vars(registry)), "a rule that the registry does not import never runs"
    assert len(modules) == len(RULES)
    assert {file.stem for file in (PROJECT / "webhook/tools/cli/rules").iterdir()} == {
        rule.id for rule in RULES
    }


@each_rule
def test_a_page_has_a_title_and_the_fixed_headings(rule: Rule) -> None:
    assert re.fullmatch(r"\S.*\.", rule.title)
    headings = re.findall(r"^## (.*)$", page_of(rule), re.MULTILINE)
    if rule.is_mutation:
        what = "What it removes" if rule.removes else "What it adds"
        assert headings == [what, *MUTATION_PAGE]
    else:
        assert headings == CHECK_PAGE
    for heading in headings:
        assert section(rule, heading).strip(), f"nothing is said under {heading}"


@each_rule
def test_a_page_names_only_existing_settings(rule: Rule) -> None:
    text = section(rule, "Settings")
    # What stands before a bullet's colon are names; what comes after it explains them.
    bullets = re.findall(r"^- ((?:`[^`]+`(?:,\s+|\s+and\s+)?)+):", text, re.MULTILINE)
    assert len(bullets) == len(re.findall(r"^- ", text, re.MULTILINE))
    names = [name for bullet in bullets for name in re.findall(r"`([^`]+)`", bullet)]
    assert names or text.startswith("The rule has no settings except its action.")
    for name in names:
        assert_setting(name)


@each_check
def test_denied_examples_of_a_page_have_a_finding_of_the_rule(rule: Rule) -> None:
    decision = decide_as_on_page(rule, "Denied")
    rules = {finding.rule for finding in decision.findings}
    assert rule.id in rules, f"Denied, under the policy of Settings, has only findings of {rules}"
    assert decision.allowed is (rule.default != "enforce")


@each_check
def test_the_corrected_examples_of_a_page_are_allowed(rule: Rule) -> None:
    assert decide_as_on_page(rule, "Use instead").findings == ()


@each_mutation
def test_the_before_example_of_a_page_is_mutated_to_the_after_example(rule: Rule) -> None:
    decision = decide_as_on_page(rule, "Before")
    assert decision.findings == ()
    (before,), (after,) = examples(rule, "Before"), examples(rule, "After")
    assert_contains(decision.mutated, after, "")
    with pytest.raises(AssertionError):
        assert_contains(before, after, "")


def section(rule: Rule, heading: str) -> str:
    _, _, rest = page_of(rule).partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0].strip()


def examples(rule: Rule, heading: str) -> list[JSONObject]:
    """Return the fenced YAML examples under a heading."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", section(rule, heading), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in load_all(block)]


def decide_as_on_page(rule: Rule, heading: str) -> Decision:
    """Decide by the default policy, with the YAML examples under Settings laid over it."""
    policy = policy_spec("default")
    for shown in examples(rule, "Settings"):
        policy = laid_over(policy, shown["spec"])
    *beside, manifest = examples(rule, heading)
    namespace = manifest["metadata"].get("namespace", "default")
    # As on a cluster: a namespace without labels, the NVIDIA operator's RuntimeClass, and nodes.
    claims, templates, _ = read_claims((namespace, obj) for obj in beside)
    facts = Facts(
        claims=claims,
        claim_templates=templates,
        nodes=NodeIndex([GPU_NODE, SHARED_NODE, Node("cpu-1", {}, (), {})]),
        namespace_labels={},
        runtime_classes={"nvidia": "nvidia"},
    )
    return decide(manifest, compiled(policy), Request(namespace=namespace), facts)


def laid_over(base: Any, change: Any) -> Any:
    """Return ``base`` with ``change`` laid over it, mappings by key and lists item by item."""
    if isinstance(base, dict) and isinstance(change, dict):
        return base | {key: laid_over(base.get(key), value) for key, value in change.items()}
    if isinstance(base, list) and isinstance(change, list):
        pairs = zip(base, change, strict=False)
        return [laid_over(*pair) for pair in pairs] + change[len(base) :] + base[len(change) :]
    return change


def assert_contains(whole: Any, part: Any, path: str) -> None:
    if isinstance(part, dict):
        assert isinstance(whole, dict), path
        for key, value in part.items():
            assert key in whole, f"{path}.{key}"
            assert_contains(whole[key], value, f"{path}.{key}")
    elif isinstance(part, list):
        assert isinstance(whole, list), path
        assert len(whole) >= len(part), path
        for index, value in enumerate(part):
            assert_contains(whole[index], value, f"{path}[{index}]")
    else:
        assert whole == part, path


def assert_setting(name: str) -> None:
    """Assert that the spec of a policy has the field, its path written as ``pools[].taints``."""
    *outer, last = name.split(".")
    part = SCHEMA
    for step in outer:
        field = part["properties"][step.removesuffix("[]")]
        assert step.endswith("[]") is (field.get("type") == "array"), name
        [reference] = re.findall(r"#/\$defs/(\w+)", str(field))
        part = SCHEMA["$defs"][reference]
    assert last in part["properties"], name


def test_the_security_policy_names_the_rules_that_do_not_enforce() -> None:
    text = " ".join((PROJECT / "SECURITY.md").read_text().split())
    [names] = re.findall(r"In the default policy, these rules do not enforce: (.*?)\. The", text)
    rules = policy_spec("default")["rules"]
    assert set(re.findall("`(.*?)`", names)) == {r for r in rules if rules[r] != "enforce"}

"""``gpufence krm``: a ResourceList in, a ResourceList out (config.kubernetes.io/v1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from running import GPU_POD, TRESPASSER, Outcome, Run, assert_golden

Object = dict[str, Any]

POLICY_CONFIG = {
    "apiVersion": "gpufence.dev/v1alpha1",
    "kind": "FencePolicy",
    "metadata": {"name": "ours", "annotations": {"team": "ml"}},
    "pools": [
        {
            "name": "ours",
            "resources": ["nvidia.com/gpu"],
            "nodeSelector": {"pool": "ours"},
            "taints": [{"key": "ours"}],
        }
    ],
}


def resource_list(*items: str, config: Any = None, **more: Any) -> Object:
    value: Object = {
        "apiVersion": "config.kubernetes.io/v1",
        "kind": "ResourceList",
        "items": [yaml.safe_load(item) for item in items],
    }
    return value | ({} if config is None else {"functionConfig": config}) | more


def options(**data: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fn"}, "data": data}


def run(gpufence: Run, given: Object, *args: str) -> Outcome:
    return gpufence("krm", *args, stdin=yaml.safe_dump(given, sort_keys=False))


GOLDEN = Path(__file__).with_name("krm")


def test_items_are_mutated_and_findings_are_results(gpufence: Run) -> None:
    done = gpufence("krm", stdin=(GOLDEN / "input.yaml").read_text())
    assert done.status == 1
    assert [line[: len("Denied: <stdin>:")] for line in done.err.splitlines()] == [
        "Denied: <stdin>:"
    ] * 2
    assert_golden(GOLDEN / "output.yaml", done.out)


@pytest.mark.parametrize(
    ("index", "read"), [(None, 0), ("2", 2), ("first", 0), ("-1", 0), ("9" * 5000, 0)]
)
def test_legacy_annotations_set_the_file_of_a_result(
    gpufence: Run, index: str | None, read: int
) -> None:
    web = yaml.safe_load(TRESPASSER)
    web["metadata"]["annotations"] = {"config.kubernetes.io/path": "web.yaml"}
    if index is not None:
        web["metadata"]["annotations"]["config.kubernetes.io/index"] = index
    [result] = yaml.safe_load(run(gpufence, resource_list(yaml.safe_dump(web))).out)["results"]
    assert result["file"] == {"path": "web.yaml", "index": read}


@pytest.mark.parametrize(
    ("action", "severity", "status"), [("warn", "warning", 0), ("audit", "info", 0)]
)
def test_findings_on_warn_or_audit_exit_0(
    gpufence: Run, action: str, severity: str, status: int
) -> None:
    config = POLICY_CONFIG | {"rules": {"pool-trespass": action}}
    web = TRESPASSER.replace("key: nvidia.com/gpu", "key: ours")
    done = run(gpufence, resource_list(web, config=config))
    assert done.status == status
    assert [r["severity"] for r in yaml.safe_load(done.out)["results"]] == [severity]


def test_check_mode_does_not_change_items(gpufence: Run) -> None:
    given = resource_list(GPU_POD, config=options(mode="check"))
    assert yaml.safe_load(run(gpufence, given).out) == given | {"results": []}
    bare = resource_list(GPU_POD)
    assert yaml.safe_load(run(gpufence, bare, "--mode", "check").out) == bare | {"results": []}


def test_the_function_config_overrides_the_command_line(gpufence: Run) -> None:
    given = resource_list(GPU_POD, config=options(mode="mutate"))
    [pod] = yaml.safe_load(run(gpufence, given, "--mode", "check").out)["items"]
    assert "tolerations" in pod["spec"]


def test_a_policy_as_function_config_is_applied(gpufence: Run) -> None:
    [pod] = yaml.safe_load(run(gpufence, resource_list(GPU_POD, config=POLICY_CONFIG)).out)["items"]
    assert pod["spec"]["tolerations"] == [
        {"key": "ours", "operator": "Exists", "effect": "NoSchedule"}
    ]
    metadata = {"name": "ours", "annotations": {"gpufence.dev/mode": "check"}}
    given = resource_list(GPU_POD, config=POLICY_CONFIG | {"metadata": metadata})
    assert yaml.safe_load(run(gpufence, given).out)["items"] == given["items"]


def test_the_policy_and_namespace_of_a_config_map_are_applied(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(
        yaml.safe_dump(
            {key: value for key, value in POLICY_CONFIG.items() if key != "metadata"}
            | {"exemptions": {"namespaces": ["lab"]}}
        )
    )
    web = TRESPASSER.replace("key: nvidia.com/gpu", "key: ours")
    fenced = run(gpufence, resource_list(web, config=options(policy="policy.yaml")))
    exempt = run(
        gpufence, resource_list(web, config=options(policy="policy.yaml", namespace="lab"))
    )
    assert (fenced.status, exempt.status) == (1, 0)


def test_an_invalid_policy_path_is_an_error(gpufence: Run) -> None:
    done = run(gpufence, resource_list(GPU_POD, config=options(policy="a\0b")))
    assert (done.status, done.out) == (2, "")
    assert done.err == "Error: a\\x00b: is not the path of a file. Check the path.\n"


def test_a_policy_on_standard_input_is_rejected(gpufence: Run) -> None:
    done = run(gpufence, resource_list(GPU_POD), "--policy", "-")
    assert (done.status, done.out) == (2, "")
    assert "The ResourceList is on standard input. Name a policy file." in done.err


def test_json_input_gives_json_output(gpufence: Run) -> None:
    done = gpufence("krm", stdin=json.dumps(resource_list(GPU_POD)))
    assert "tolerations" in json.loads(done.out)["items"][0]["spec"]


def test_a_list_without_items_has_no_results(gpufence: Run) -> None:
    done = run(gpufence, resource_list())
    assert yaml.safe_load(done.out) == resource_list(results=[])


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"kind": "Pod"}, "is of kind 'Pod'; accepted: a ConfigMap or a FencePolicy"),
        ("check", "must be an object; accepted: a ConfigMap or a FencePolicy"),
        (options(mode="fix"), "has the mode 'fix'; accepted: mutate or check"),
        (options(modus="check"), "has the unknown option 'modus' under data; accepted: mode, "),
        (
            options(mode=True),
            "has an option mode that is not a string; accepted: a string in quotes",
        ),
        ({"kind": "ConfigMap", "data": "x"}, "has data that is not a mapping; accepted: mode, "),
        (
            {"kind": "FencePolicy", "metadata": {"annotations": {"gpufence.dev/mode": "x"}}},
            "has the mode 'x'; accepted: mutate or check",
        ),
        (
            {"apiVersion": "gpufence.dev/v1alpha1", "kind": "FencePolicy", "pools": []},
            "is not a valid policy: pools: is empty",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_function_config_is_an_error(gpufence: Run, config: Any, problem: str) -> None:
    done = run(gpufence, resource_list(GPU_POD, config=config))
    assert (done.status, done.out) == (2, "")
    assert f"Error: the functionConfig {problem}" in done.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GPU_POD, "is not an object of kind ResourceList"),
        ("", "is not an object of kind ResourceList"),
        ("kind: ResourceList\nitems: []\n", "is not an object of kind ResourceList"),
        ("kind: [", "Error: <stdin>:"),
        (b"\xff\xfe\xff", "Error: <stdin>:1: is not UTF-16 text"),
    ],
    ids=["a Pod", "empty", "no apiVersion", "invalid YAML", "not UTF-16"],
)
def test_input_that_is_not_a_resource_list_is_an_error(
    gpufence: Run, text: str | bytes, problem: str
) -> None:
    done = gpufence("krm", stdin=text)
    assert (done.status, done.out) == (2, "")
    assert problem in done.err

"""``gpufence explain``: the rules' pages, and what happens to the Pods of a file and why."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
import yaml

from policies.registry import RULES
from policies.shipped import preset_text
from running import BROKEN, CONFIG_MAP, GPU_POD, PLAIN_POD, TRESPASSER, Run, manifest

TODAY = date(2026, 11, 21)
NODES = manifest("""
    apiVersion: v1
    kind: Node
    metadata: {name: big, labels: {nvidia.com/gpu.present: "true"}}
    spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}
    status: {allocatable: {nvidia.com/gpu: "8"}}
    ---
    apiVersion: v1
    kind: Node
    metadata: {name: empty, labels: {nvidia.com/gpu.present: "true"}}
    spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}
    ---
    apiVersion: v1
    kind: Node
    metadata: {name: drained, labels: {nvidia.com/gpu.present: "true"}}
    spec:
      taints:
        - {key: nvidia.com/gpu, effect: NoSchedule}
        - {key: maintenance, value: disk, effect: NoExecute}
    status: {allocatable: {nvidia.com/gpu: "8"}}
    ---
    apiVersion: v1
    kind: Node
    metadata: {name: cpu}
    """)


def test_every_rule_is_listed_with_its_action_and_title(gpufence: Run) -> None:
    done = gpufence("explain")
    rows = [re.split(r" {2,}", line) for line in done.out.splitlines()]
    assert rows == [[rule.id, rule.default, rule.page.splitlines()[0]] for rule in RULES]


def test_the_listed_action_of_a_rule_comes_from_the_policy(gpufence: Run, tmp_path: Path) -> None:
    policy = gpufence("policy", "show").out.replace("pool-trespass: enforce", "pool-trespass: off")
    (tmp_path / "policy.yaml").write_text(policy)
    done = gpufence("explain", "--policy", "policy.yaml", "--output", "markdown")
    assert "| pool-trespass | off | Pod without a GPU request" in done.out
    page = gpufence("explain", "--policy", "policy.yaml", "pool-trespass").out
    assert page.endswith(" The policy sets it to `off`.\n")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_piped_page_is_complete_plain_text(gpufence: Run, rule: object) -> None:
    [known] = [candidate for candidate in RULES if candidate is rule]
    done = gpufence("explain", known.id)
    assert done.status == 0
    assert done.out.startswith(f"{known.id}\n\n{known.page.splitlines()[0]}\n")
    assert "```" not in done.out
    assert "\x1b" not in done.out
    headings = [h.upper() for h in re.findall(r"^## (.*)$", known.page, re.MULTILINE)]
    assert [line for line in done.out.splitlines() if line in headings] == headings
    assert f"Its default action is `{known.default}`." in done.out


def test_code_blocks_of_a_plain_page_are_indented(gpufence: Run) -> None:
    page = gpufence("explain", "pool-trespass").out
    shown = page[page.index("DENIED") :].partition("USE INSTEAD")[0]
    lines = [line for line in shown.splitlines() if line.startswith("    ")]
    assert yaml.safe_load("\n".join(lines))["metadata"]["name"] == "web"


def test_markdown_output_contains_the_source_of_the_page(gpufence: Run) -> None:
    done = gpufence("explain", "--output", "markdown", "device-leak")
    [rule] = [rule for rule in RULES if rule.id == "device-leak"]
    assert done.out.startswith(f"# device-leak\n\n{rule.page.strip()}\n\n## Action\n")


def test_color_always_renders_the_page_with_ansi_codes(gpufence: Run) -> None:
    done = gpufence("explain", "--color", "always", "device-leak")
    assert "\x1b[" in done.out
    assert "```" not in done.out


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("pool-tresspass", "pool-trespass"),
        ("leak", "device-leak"),
        ("Pool-Trespass", "pool-trespass"),
    ],
)
def test_an_unknown_name_is_rejected_with_suggestions(
    gpufence: Run, name: str, suggested: str
) -> None:
    done = gpufence("explain", name)
    assert done.status == 2
    assert done.err.startswith(f"Error: {name} is neither a rule nor a file. Did you mean ")
    assert suggested in done.err


@pytest.mark.parametrize("name", ["zzz", "z" * 300])
def test_an_unknown_name_without_similar_names_is_rejected_with_remediation(
    gpufence: Run, name: str
) -> None:
    done = gpufence("explain", name)
    assert (
        f"{name} is neither a rule nor a file. To list the rules, run gpufence explain." in done.err
    )


def test_a_rule_takes_precedence_over_a_file_of_the_same_name(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "pool-trespass").write_text(GPU_POD)
    done = gpufence("explain", "pool-trespass")
    assert done.out.startswith("pool-trespass\n")
    assert "To explain the file of that name, run gpufence explain ./pool-trespass." in done.err
    assert "Why it is a GPU Pod" in gpufence("explain", "./pool-trespass").out


def test_markdown_output_is_rejected_for_files(gpufence: Run) -> None:
    done = gpufence("explain", "--output", "markdown", "-", stdin=GPU_POD)
    assert done.status == 2
    assert "--output markdown is for rules" in done.err


def test_explanation_of_a_gpu_pod_covers_request_mutations_and_scheduling(gpufence: Run) -> None:
    done = gpufence("explain", "-", stdin=GPU_POD)
    assert done.status == 0
    assert done.err == ""
    for expected in (
        "mutated  Pod ml/train  <stdin>:1",
        "Why it is a GPU Pod",
        (
            "Container train requests nvidia.com/gpu: 1, which pool nvidia offers "
            "(at spec.containers[0].resources.limits[nvidia.com/gpu])."
        ),
        "pool-toleration  the tolerations for the taints of the pool",
        (
            "      +  tolerations:\n"
            "      +  - key: nvidia.com/gpu\n"
            "      +    operator: Exists\n"
            "      +    effect: NoSchedule\n"
        ),
        "Why: GPU nodes have a taint so that other Pods do not run on them.",
        "No changes by pool-exclusion, void-visible-devices, assigned-devices, gpu-runtime-class, ",
        "It selects nodes with nvidia.com/gpu.present=true.",
        "It needs a node with 1 nvidia.com/gpu.",
        "It fits the nodes of pool nvidia",
        "No findings: unequal-device-limits, shared-device-count",
    ):
        assert expected in done.out


def test_the_mutations_of_a_job_are_listed_once(gpufence: Run) -> None:
    pod = yaml.safe_load(GPU_POD)["spec"]
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"template": {"spec": pod}},
                "Worker": {"template": {"spec": pod}},
            }
        },
    }
    shown = gpufence("explain", "-", stdin=yaml.safe_dump(job)).out
    assert shown.count("Mutations\n") == 1
    assert shown.count("+            operator: Exists\n") == 2


def test_explanation_of_a_trespasser_has_its_fit_and_its_findings(gpufence: Run) -> None:
    done = gpufence("explain", "-", stdin=TRESPASSER)
    assert done.status == 0
    for expected in (
        "Why it is not a GPU Pod",
        "It requests no device of a pool. Pools of the policy: nvidia.",
        "It fits the nodes of pool nvidia: its node selection matches them, and it tolerates",
        "enforce  pool-trespass  <stdin>:9  spec.template.spec.tolerations[0]",
        "For GPU Pods only: oversized-device-request, pool-not-allowed, pool-requirements, ",
    ):
        assert expected in done.out


def test_a_pod_without_toleration_does_not_fit_because_of_the_taint(gpufence: Run) -> None:
    done = gpufence("explain", "-", stdin=PLAIN_POD)
    assert (
        "It does not fit the nodes of pool nvidia: it does not tolerate their taint "
        "nvidia.com/gpu:NoSchedule." in done.out
    )


def test_nodes_that_exclude_the_pod_are_listed_with_the_reason(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "nodes.yaml").write_text(NODES)
    done = gpufence("explain", "--nodes", "nodes.yaml", "-", stdin=GPU_POD)
    assert "It fits 1 of 3 nodes of pool nvidia: big." in done.out
    because = "because the Pod does not tolerate its taint maintenance=disk:NoExecute."
    assert f"Excluded: drained, {because}" in done.out
    assert "Excluded: empty, because it has 0 nvidia.com/gpu, and the Pod needs 1." in done.out
    assert "cpu" not in done.out
    plain = gpufence("explain", "--nodes", "nodes.yaml", "-", stdin=PLAIN_POD)
    assert "It fits none of 3 nodes of pool nvidia." in plain.out


def test_check_and_explain_report_that_no_node_has_enough_devices(
    gpufence: Run, tmp_path: Path
) -> None:
    big = NODES.split("---\n")[0]
    (tmp_path / "nodes.yaml").write_text(big)
    large = GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 16")
    for command in ("check", "explain"):
        done = gpufence(command, "--nodes", "nodes.yaml", "-", stdin=large)
        assert done.status == 0
        assert "no node has enough devices: the Pod needs 16 nvidia.com/gpu" in done.out
    assert "It fits none of 1 node of pool nvidia." in done.out
    assert "Excluded: big, because it has 8 nvidia.com/gpu, and the Pod needs 16." in done.out


def test_a_pod_with_node_name_fits_only_that_node(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(NODES)
    bound = GPU_POD.replace("spec:\n", "spec:\n  nodeName: big\n")
    done = gpufence("explain", "--nodes", "nodes.yaml", "-", stdin=bound)
    assert "It fits 1 of 3 nodes of pool nvidia: big." in done.out
    assert "Excluded: drained, empty, because nodeName binds the Pod to big." in done.out


def test_resources_that_are_not_gpu_requests_are_explained(gpufence: Run) -> None:
    text = GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 0\n          example.com/fpga: 1")
    text += "  resourceClaims:\n    - name: gpu\n      resourceClaimName: mine\n"
    done = gpufence("explain", "-", stdin=text)
    assert "Why it is not a GPU Pod" in done.out
    for expected in (
        "nvidia.com/gpu: 0 does not request a device of a pool: its quantity is 0",
        "example.com/fpga: 1 does not request a device of a pool: it is not a resource of any pool",
        "Claim mine is unknown and does not count as a request (at spec.resourceClaims[0]).",
    ):
        assert expected in done.out


def test_an_annotation_for_another_scheduler_is_explained(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(preset_text("kai"))
    text = PLAIN_POD.replace("metadata:\n", 'metadata:\n  annotations: {gpu-fraction: "0.5"}\n', 1)
    done = gpufence("explain", "--policy", "policy.yaml", "-", stdin=text)
    assert (
        "gpu-fraction does not request a device of a pool: schedulerName is default-scheduler, and "
        "kai-scheduler reads the annotation (at metadata.annotations[gpu-fraction])."
    ) in done.out
    text = text.replace("spec:\n", "spec:\n  schedulerName: kai-scheduler\n", 1)
    done = gpufence("explain", "--policy", "policy.yaml", "-", stdin=text)
    assert "The Pod requests gpu-fraction: 0.5, which pool nvidia offers" in done.out


def test_a_negative_count_is_explained_as_invalid(gpufence: Run) -> None:
    done = gpufence(
        "explain", "-", stdin=GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: -1")
    )
    message = (
        "nvidia.com/gpu: -1 does not request a device of a pool: the API server rejects quantities"
    )
    assert f"{message} below 0" in done.out


def test_a_claim_in_the_input_makes_the_pod_a_gpu_pod(gpufence: Run) -> None:
    claim = manifest("""
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: mine, namespace: ml}
        spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
        ---
        """)
    pod = PLAIN_POD.replace("name: web\n", "name: web\n  namespace: ml\n", 1)
    pod += "      resources: {claims: [{name: gpu}]}\n"
    pod += "  resourceClaims:\n    - name: gpu\n      resourceClaimName: mine\n"
    done = gpufence("explain", "-", stdin=claim + pod)
    assert (
        "The Pod requests claim mine on device class gpu.nvidia.com, which pool nvidia offers"
        in done.out
    )
    assert "gpufence finds no pod template in it." in done.out


def test_each_template_of_an_object_is_explained(gpufence: Run) -> None:
    job = manifest("""
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: train}
        spec:
          pytorchReplicaSpecs:
            Master:
              template:
                spec:
                  containers: [{name: main, image: a}]
            Worker:
              template:
                spec:
                  containers:
                    - {name: work, image: b, resources: {limits: {nvidia.com/gpu: 2}}}
        """)
    done = gpufence("explain", "-", stdin=job)
    titles = [line.strip() for line in done.out.splitlines() if "(Pod at " in line]
    assert titles == [
        "Why it is not a GPU Pod (Pod at spec.pytorchReplicaSpecs.Master.template.spec)",
        "Why it is a GPU Pod (Pod at spec.pytorchReplicaSpecs.Worker.template.spec)",
        "Scheduling (Pod at spec.pytorchReplicaSpecs.Master.template.spec)",
        "Scheduling (Pod at spec.pytorchReplicaSpecs.Worker.template.spec)",
    ]
    assert "Container work requests nvidia.com/gpu: 2" in done.out


def test_an_exempt_pod_has_no_mutations(gpufence: Run) -> None:
    done = gpufence("explain", "--namespace", "kube-system", "-", stdin=TRESPASSER)
    assert "Exempt from every rule: the policy exempts namespace kube-system." in done.out
    assert "Mutations" not in done.out


def test_exceptions_and_actions_of_the_policy_are_reported(gpufence: Run, tmp_path: Path) -> None:
    policy = gpufence("policy", "show").out
    policy = policy.replace("pool-toleration: enforce", "pool-toleration: warn")
    policy = policy.replace("device-leak: enforce", "device-leak: off")
    policy += manifest("""
        exceptions:
          - rules: [pool-trespass]
            namespaces: [default]
            reason: moves out with the old ingress
            expires: 2199-01-01
        """)
    (tmp_path / "policy.yaml").write_text(policy)
    done = gpufence("explain", "--policy", "policy.yaml", "-", stdin=TRESPASSER)
    assert "excepted  pool-trespass  spec" in done.out
    assert "Exception in the policy for pool-trespass, expires on 2199-01-01: moves out" in done.out
    assert "Off in the policy: device-leak." in done.out
    gpu = gpufence("explain", "--policy", "policy.yaml", "-", stdin=GPU_POD)
    assert "pool-toleration (on warn)" in gpu.out
    assert "warn  pool-toleration  <stdin>:" in gpu.out


def test_invalid_objects_are_reported_with_the_explanations(gpufence: Run) -> None:
    done = gpufence("explain", "-", stdin=f"{BROKEN}---\n{CONFIG_MAP}---\n{GPU_POD}")
    assert done.status == 2
    assert "invalid" in done.out
    assert "Why it is a GPU Pod" in done.out


def test_input_without_objects_is_an_error(gpufence: Run) -> None:
    done = gpufence("explain", "-", stdin="")
    assert done.status == 2
    assert "no objects in <stdin>" in done.err


SPARK = manifest("""
    apiVersion: sparkoperator.k8s.io/v1beta2
    kind: SparkApplication
    metadata: {name: s}
    spec:
      driver: {}
      executor:
        gpu: {name: nvidia.com/gpu, quantity: 1}
    """)


def test_pods_that_only_the_webhook_can_mutate_are_explained(
    gpufence: Run,
) -> None:
    done = gpufence("explain", "-", stdin=SPARK)
    lines = [line.strip() for line in done.out.splitlines()]
    assert (
        "Container spark-kubernetes-executor requests nvidia.com/gpu: 1, which pool nvidia offers "
        "(at spec.executor.gpu.quantity)."
    ) in lines
    assert (
        "The webhook mutates the Pods at spec.executor when they are created: a SparkApplication "
        "cannot hold all mutations."
    ) in lines
    executors = lines[lines.index("Scheduling (Pod at spec.executor)") :]
    assert executors[3] == (
        "It fits the nodes of pool nvidia: its node selection matches them, and it tolerates their "
        "taints."
    )
    assert not any(line.startswith("No changes by") for line in lines)

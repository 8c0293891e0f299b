"""The text of a denial is the same with replicas and without, on a real API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from controlplane.cluster import ControlPlane
from controlplane.fence import running
from controlplane.objects import TOLERATION, workload
from deciding import required
from in_tree import in_tree, path_of
from policies.shipped import shipped_policy
from specs import JSON, default_spec

LINE = re.compile(r"^- (.*)$", re.MULTILINE)
SENTENCE = re.compile(r"\S.*?(?:\. (?=[A-Z])|$)")
GPU_LABEL = "nvidia.com/gpu.present"
ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
DEVICE = {"name": "device", "hostPath": {"path": "/dev/nvidia0"}}


def pod(name: str, *containers: JSON, **spec: Any) -> JSON:
    made = [
        {"name": f"c{n}", "image": "i", **fields} for n, fields in enumerate(containers or ({},))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": made, **spec},
    }


def template(kind: str, of: JSON) -> JSON:
    """Return a workload of ``apps/v1`` with the Pod's spec."""
    return workload(kind, of["metadata"]["name"], of["spec"])


def cron_job(of: JSON) -> JSON:
    spec = {**of["spec"], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": of["metadata"],
        "spec": {
            "schedule": "0 0 * * *",
            "jobTemplate": {"spec": {"template": {"spec": spec}}},
        },
    }


OTHER = {"key": "other", "operator": "Exists"}
PRESENT = {"key": GPU_LABEL, "operator": "Exists"}
DENIALS: tuple[JSON, ...] = (
    pod("toleration", tolerations=[TOLERATION]),
    pod("second-toleration", tolerations=[OTHER, TOLERATION]),
    pod("two-tolerations", tolerations=[TOLERATION, OTHER, {**TOLERATION, "effect": ""}]),
    pod("every-effect", tolerations=[{"key": TOLERATION["key"], "operator": "Exists"}]),
    pod("two-effects", tolerations=[TOLERATION, {**TOLERATION, "effect": "NoExecute"}]),
    pod("node-selector", nodeSelector={GPU_LABEL: "true"}),
    pod("node-selector-and-toleration", nodeSelector={GPU_LABEL: "true"}, tolerations=[TOLERATION]),
    pod("affinity", **required(f"{GPU_LABEL} In true")),
    pod(
        "two-terms",
        **required("zone In a", {"matchExpressions": [PRESENT]}, f"{GPU_LABEL} In true"),
    ),
    pod(
        "selector-and-terms",
        nodeSelector={GPU_LABEL: "true"},
        **required("zone In a", "zone In b"),
    ),
    pod("variable", {"env": [ALL]}),
    pod("second-container", {}, {"env": [{"name": "A", "value": "b"}, ALL]}),
    pod("last-variable-counts", {"env": [{**ALL, "value": "void"}, ALL]}),
    pod(
        "variable-from-a-field",
        {"env": [{"name": ALL["name"], "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    ),
    pod("init-container", initContainers=[{"name": "init", "image": "i", "env": [ALL]}]),
    pod("volume", volumes=[{"name": "data", "emptyDir": {}}, DEVICE]),
    pod("both-rules", {"env": [ALL]}, {"env": [ALL]}, tolerations=[TOLERATION], volumes=[DEVICE]),
    template("Deployment", pod("deployment", {"env": [ALL]}, tolerations=[TOLERATION])),
    template("StatefulSet", pod("stateful-set", tolerations=[TOLERATION])),
    cron_job(pod("cron-job", nodeSelector={GPU_LABEL: "true"}, volumes=[DEVICE])),
)


def denials(cluster: ControlPlane) -> dict[str, str]:
    """Return why the API server denies each object, by name."""
    found = {
        obj["metadata"]["name"]: cluster.api.refusal(str(path_of(obj, "default")), obj)
        for obj in DENIALS
    }
    assert [name for name, message in found.items() if not message] == []
    return found


def test_a_denial_says_the_same_with_replicas_and_without(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    policy = shipped_policy()
    with in_tree(control_plane, policy):
        alone = denials(control_plane)
    with running(control_plane, tmp_path, default_spec()) as fence, fence.registered():
        with_replicas = denials(control_plane)
    for name, text in alone.items():
        print(f"\n### {name}\n\nwithout replicas:\n{text}\n\nwith:\n{with_replicas[name]}")
        policy_says = text.partition("denied request: ")[2]
        webhook_says = LINE.findall(with_replicas[name])
        # Users see the denial of one admission policy, which is about one rule.
        rule = policy_says.partition(":")[0]
        of_rule = [each for each in webhook_says if each.startswith(rule)]
        assert policy_says == ". ".join(of_rule), name
        assert webhook_says
        for finding in webhook_says:
            # What is wrong, and what to do: for a platform, and otherwise.
            assert len(SENTENCE.findall(finding)) == 2 + (". Otherwise " in finding), finding

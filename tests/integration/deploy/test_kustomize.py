"""``gpufence krm`` as a function of the real kustomize."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from controlplane.gpufence import COMMAND
from paths import PROJECT

SAMPLES = PROJECT / "deploy" / "samples"
BUILD = ("build", "--enable-alpha-plugins", "--enable-exec", ".")
Result = subprocess.CompletedProcess[str]


def function(mode: str, program: str = "{path: gpufence, args: [krm]}") -> dict[str, Any]:
    """Return a functionConfig as the command's own help shows it."""
    annotation = {"config.kubernetes.io/function": f"exec: {program}\n"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpufence", "annotations": annotation},
        "data": {"mode": mode},
    }


def run(directory: Path, *command: str | Path) -> Result:
    """Run a command in a directory, with gpufence on its path."""
    path = os.pathsep.join([str(COMMAND.parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": path},
    )


def kustomization(directory: Path, *samples: str, **functions: Any) -> None:
    """Write a kustomization of the samples; ``functions`` are fields with one functionConfig."""
    for sample in samples:
        shutil.copy(SAMPLES / sample, directory)
    document: dict[str, Any] = {"resources": list(samples)}
    for field, config in functions.items():
        (directory / f"{field}.yaml").write_text(yaml.safe_dump(config))
        document[field] = [f"{field}.yaml"]
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(document))


def objects(done: Result) -> dict[str, Any]:
    """Return the objects that were printed, by kind."""
    assert done.returncode == 0, done.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}


def test_a_kustomize_transformer_mutates_objects(kustomize: Path, tmp_path: Path) -> None:
    kustomization(tmp_path, "gpu-job.yaml", "web.yaml", transformers=function("mutate"))
    built = objects(run(tmp_path, kustomize, *BUILD))
    mutated = objects(run(SAMPLES, COMMAND, "mutate", "gpu-job.yaml", "web.yaml"))
    assert built == mutated
    assert built["Job"]["spec"]["template"]["spec"]["tolerations"]


def test_kustomize_build_fails_on_a_denied_object(kustomize: Path, tmp_path: Path) -> None:
    kustomization(tmp_path, "web-on-gpu-nodes.yaml", transformers=function("check"))
    done = run(tmp_path, kustomize, *BUILD)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Deployment default/web-on-gpu-nodes: pool-trespass: " in done.stderr


def test_check_mode_does_not_change_the_kustomize_output(kustomize: Path, tmp_path: Path) -> None:
    kustomization(tmp_path, "gpu-job.yaml", "web.yaml")
    plain = run(tmp_path, kustomize, *BUILD)
    kustomization(tmp_path, "gpu-job.yaml", "web.yaml", transformers=function("check"))
    checked = run(tmp_path, kustomize, *BUILD)
    assert objects(plain)
    assert checked.stdout == plain.stdout


def test_kustomize_accepts_a_policy_as_function_config(kustomize: Path, tmp_path: Path) -> None:
    policy = yaml.safe_load((PROJECT / "policies" / "default.yaml").read_text())
    policy["rules"]["pool-trespass"] = "warn"
    annotations = function("check")["metadata"]["annotations"]
    policy["metadata"] = {
        "name": "ours",
        "annotations": annotations | {"gpufence.dev/mode": "check"},
    }
    kustomization(tmp_path, "web-on-gpu-nodes.yaml", "gpu-job.yaml", transformers=policy)
    built = objects(run(tmp_path, kustomize, *BUILD))
    assert "tolerations" not in built["Job"]["spec"]["template"]["spec"]


def test_kustomize_rejects_exec_functions_as_validators(kustomize: Path, tmp_path: Path) -> None:
    """Why the help says transformers: even one that changes nothing is rejected, for kustomize
    itself annotates what comes back (kubernetes-sigs/kustomize issue 5036)."""
    kustomization(tmp_path, "web.yaml", validators=function("check", "{path: cat}"))
    done = run(tmp_path, kustomize, *BUILD)
    assert "validator shouldn't modify the resource map" in done.stderr
    assert "config.kubernetes.io/path" in done.stderr

"""A release called fence: each command uses the FencePolicy that its replicas follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from controlplane import policies
from controlplane.poll import until
from deploy import kubelet
from deploy.chart import NAMESPACE
from deploy.installation import Installation
from running import TRESPASSER, Outcome, run_here
from specs import default_spec, fence_policy

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
    pytest.mark.slow("installs the chart under another name"),
]

NAME = "fence-gpufence"
FOLLOWED = f"Policy: FencePolicy {NAME}\n"
WARNING = (
    f"Warning: this gpufence follows FencePolicy {NAME} and ignores gpufence. To change its "
    f"policy, set metadata.name to {NAME}\n"
)


@pytest.fixture(scope="module")
def installed(installable: Installation) -> Iterator[Installation]:
    installed = replace(installable, release="fence")
    installed.install({"webhook": {"drainSeconds": 1}})
    yield installed
    installed.helm("uninstall", "fence", "--namespace", NAMESPACE, "--ignore-not-found")


def test_a_release_with_another_name(installed: Installation, tmp_path: Path) -> None:
    """Prints what the commands say with one FencePolicy, with two, with none, and uninstalled."""
    cluster, kubectl = installed.cluster, installed.cluster.kubectl
    pod, file = tmp_path / "pod.yaml", tmp_path / "policy.yaml"
    pod.write_text(TRESPASSER)
    lax = default_spec() | {"rules": {"pool-trespass": "off"}}
    file.write_text(yaml.safe_dump(fence_policy(lax)))

    def run(command: str) -> Outcome:
        words = [{"POD": str(pod), "FILE": str(file)}.get(word, word) for word in command.split()]
        done = run_here(*words, "--kubeconfig", cluster.kubeconfig)
        shown = [line for line in done.err.splitlines() if line] or done.out.splitlines()
        print(f"$ gpufence {command}  # exit status {done.status}", *shown[:3], sep="\n")
        return done

    commands = {
        "check --cluster POD": 1,
        "mutate --cluster POD": 1,
        "explain --cluster POD": 0,
        "audit --fail-on never": 0,
        "policy diff --cluster FILE": 1,
    }

    def all_follow() -> None:
        found = {command: run(command) for command in commands}
        assert {command: done.status for command, done in found.items()} == commands
        assert not [done for done in found.values() if not done.err.startswith(FOLLOWED)]

    print("\n# A release called fence.")
    all_follow()
    assert run(f"doctor --name {NAME} --namespace {NAMESPACE}").status == 0
    assert (
        "replicas do not follow FencePolicy gpufence" in run("policy validate --cluster FILE").err
    )

    print("\n# Two FencePolicies.")
    for dry_run in (("--dry-run=server",), ()):
        done = kubectl("apply", "-f", str(file), *dry_run)
        print("$ kubectl apply -f FILE", *dry_run, f"\n{done.stderr}{done.stdout}", end="")
        assert done.stderr == WARNING
    all_follow()
    assert run("check --cluster --fence-policy gpufence POD").status == 0

    print("\n# Another client changes the name: the controller repairs it.")
    kind, key = "mutatingwebhookconfiguration", "gpufence.dev/fence-policy"
    kubectl("annotate", "--overwrite", kind, NAME, f"{key}=gpufence")
    until(
        lambda: kubectl.json("get", kind, NAME)["metadata"]["annotations"][key] == NAME,
        "the repair",
    )

    for left in ("gpufence", "none"):
        print(f"\n# The FencePolicy that replicas follow is deleted; left: {left}.")
        kubectl("delete", "fencepolicy", NAME if left == "gpufence" else "gpufence")
        missing = f"replicas follow FencePolicy {NAME}, which does not exist. FencePolicies in the "
        assert not [each for each in commands if f"{missing}cluster: {left}. " not in run(each).err]
    doctor = run(f"doctor --name {NAME} --namespace {NAMESPACE}").out
    assert f"the cluster has no FencePolicy {NAME}. FencePolicies in the cluster: none" in doctor

    print("\n# No installation.")
    installed.uninstall()
    until(lambda: not installed.configurations(), "both configurations to be gone")
    policies.use(cluster.api, lax)
    unknown = "the FencePolicy that replicas follow is unknown: no webhook of gpufence is "
    unknown += "registered. FencePolicies in the cluster: gpufence. "
    assert not [each for each in commands if unknown not in run(each).err]
    assert run("check --cluster --fence-policy gpufence POD").status == 0

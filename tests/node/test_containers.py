"""What containers do at their start as root, as user 65532, and with a home directory.

The table of docs/operate/images-for-root.md has a row for each container here: whether it runs, and
what it prints. The tests run before those that install the release, which would change the Pods.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.poll import until
from node.image import WORKLOADS, Images
from node.machine import GPUS, NAME, Node
from paths import PROJECT
from policies.engine import decide
from policies.policy import Policy
from specs import JSON, default_spec, policy_of

PAGE = PROJECT / "docs/operate" / "images-for-root.md"
PIP = "pip install --no-index --quiet --root-user-action ignore /packages/tabulate-*.whl"
COMMANDS = {
    "look up the name of the user": (
        "python3 -c 'import getpass; print(\"/tmp/torchinductor_\" + getpass.getuser())'"
    ),
    "write to the cache of Hugging Face": (
        "python3 -c 'import os, huggingface_hub.constants as c; os.makedirs(c.HF_HUB_CACHE); "
        "print(c.HF_HUB_CACHE)'"
    ),
    "start Jupyter": (
        "jupyter server --no-browser --allow-root > /tmp/log 2>&1 & "
        "until grep -m1 'is running at' /tmp/log; do "
        "sleep 1; kill -0 $! || { tail -1 /tmp/log; exit 1; }; done"
    ),
    "`pip install`": f"{PIP} && python3 -c 'import tabulate; print(tabulate.__file__)'",
    "`pip install`, and run a command of the package": f"{PIP} && tabulate --help > /tmp/log "
    "&& head -1 /tmp/log",
    "`pip install` in a virtual environment": f"/opt/venv/bin/{PIP} && echo installed",
    "write to a new volume": "touch /data/file && stat --format '%u:%g' /data/file",
    "`apt-get install`": "apt-get install /packages/hello_*.deb",
    "`sudo`": "sudo --non-interactive id",
    "`ssh`": "ssh -G localhost > /tmp/log && head -1 /tmp/log",
    "listen on port 80": "python3 -c 'import socket; print(socket.create_server((\"\", 80)))'",
    "read a file below `/root`": "head -1 /root/.bashrc",
}
"""By the row of the table, what a container runs."""


def policies() -> list[Policy | None]:
    """Return a policy for each column of the table: none, the default, and one with home."""
    home = default_spec() | {"hardening": {"home": "1Gi"}}
    return [None, policy_of(default_spec()), policy_of(home)]


def pod(row: str, policy: Policy | None, number: int) -> JSON:
    """Return the Pod of a row as the cluster creates it with a policy."""
    main: JSON = {
        "name": "main",
        "image": WORKLOADS,
        "command": ["sh", "-c", COMMANDS[row]],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    spec: JSON = {"restartPolicy": "Never", "containers": [main]}
    if "volume" in row:
        main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c{number}"}}]
    made: JSON = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}"},
        "spec": spec,
    }
    return made if policy is None else decide(made, policy).mutated


def volume(directory: Path, number: int) -> list[JSON]:
    """Return a claim, and a volume that belongs to root as a new one does."""
    path = directory / f"volume-{number}"
    path.mkdir()
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": f"v{number}",
    }
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"v{number}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"c{number}"},
            "spec": spec | {"resources": {"requests": {"storage": "1Gi"}}},
        },
    ]


def outcome(node: Node, name: str) -> str:
    """Return whether a container ran, and what it printed, or why it did not start."""
    kubectl = node.cluster.kubectl
    status = kubectl.json("get", "pod", name)["status"]
    [container] = status["containerStatuses"]
    ended = container["state"]["terminated"]
    printed = kubectl("logs", name, check=False).stdout.split() or [ended.get("message", "")]
    return f"{'fails' if ended['exitCode'] else 'runs'}: {' '.join(printed)[-400:]}"


@pytest.fixture(scope="module")
def outcomes(node: Node, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Run all containers, and return the outcomes of each row."""
    node.load(Images(tmp_path_factory.mktemp("workloads")).workloads())
    kubectl, directory = node.cluster.kubectl, tmp_path_factory.mktemp("volumes")
    runs = [(row, policy) for row in COMMANDS for policy in policies()]
    names = [f"pod-{number}" for number in range(len(runs))]
    for number, (row, policy) in enumerate(runs):
        if "volume" in row:
            kubectl.create(*volume(directory, number))
        kubectl.create(pod(row, policy, number))

    def ended() -> bool:
        pods = kubectl.json("get", "pods", *names)["items"]
        return all(each["status"]["phase"] in ("Succeeded", "Failed") for each in pods)

    until(ended, f"{len(runs)} Pods to end on {NAME} with {GPUS} GPUs", 600, every=2)
    found: dict[str, list[str]] = {row: [] for row in COMMANDS}
    for name, (row, _) in zip(names, runs, strict=True):
        found[row].append(outcome(node, name))
    kubectl("delete", "pods", *names, "--grace-period=1")
    return found


def test_containers_run_and_fail_as_the_page_says(outcomes: dict[str, list[str]]) -> None:
    print("\n" + "\n".join(f"| {row} | {' | '.join(found)} |" for row, found in outcomes.items()))
    rows = re.findall(r"^\| (.+?) \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    written = {row: cells for row, *cells in rows if row in COMMANDS}
    assert written.keys() == COMMANDS.keys()
    wrong = [
        (row, cell, found)
        for row, cells in written.items()
        for cell, found in zip(cells, outcomes[row], strict=True)
        if not (found.startswith(cell.partition(":")[0]) and cell.split("`")[1] in found)
    ]
    assert not wrong

"""Which policy commands use in a cluster: the one that replicas follow, and never another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.simulated import Cluster
from clusters import gpu_node
from fake_apiserver import FakeApiServer
from running import TRESPASSER, Outcome, Run
from specs import default_spec
from webhook.active_policy import PATH as FENCE_POLICIES
from webhook.controller.text.objects import FENCE_POLICY
from webhook.registered import KINDS

COMMANDS = (
    "check --cluster pod.yaml",
    "mutate --cluster pod.yaml",
    "explain --cluster pod.yaml",
    "audit",
    "policy diff --cluster new.yaml",
)
DENYING = default_spec()
ALLOWING = {**DENYING, "rules": {"pool-trespass": "off"}}
CHOOSE = "Choose a FencePolicy with --fence-policy, or {}."
FILES = dict.fromkeys(COMMANDS, "name a policy file with --policy")
FILES |= {each: "name OLD" for each in COMMANDS if "diff" in each}
UNKNOWN = "the FencePolicy that replicas follow is unknown:"
UNNAMED = (
    "no FencePolicy (annotation gpufence.dev/fence-policy): an earlier version of gpufence "
    "wrote it, or its replicas read a file"
)


@pytest.fixture
def api(tmp_path: Path, gpufence: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "pod.yaml").write_text(TRESPASSER)
    (tmp_path / "new.yaml").write_text(gpufence("policy", "show").out)
    cluster = Cluster()
    cluster.add("Node", gpu_node("gpu-1"))
    api = cluster.api
    with api.in_thread():
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        yield api


def test_every_command_uses_the_policy_that_replicas_follow(
    api: FakeApiServer, gpufence: Run
) -> None:
    """The second policy has the name that commands once took for granted."""
    api.follow("gpufence", spec=DENYING)
    api.follow("fence-gpufence", "fence-gpufence", ALLOWING)
    for path in KINDS.values():
        api.remove(path, "gpufence")
    used = {command: gpufence(*command.split()) for command in COMMANDS}
    named = {command: done.err.partition("\n")[0] for command, done in used.items()}
    assert named == dict.fromkeys(COMMANDS, "Policy: FencePolicy fence-gpufence")
    assert [done.status for done in used.values()] == [0, 0, 0, 0, 1]
    done = gpufence("check", "--cluster", "--fence-policy", "gpufence", "pod.yaml")
    assert (done.status, done.err) == (1, "Policy: FencePolicy gpufence\n")


CREATE = "Create it with kubectl apply, choose another with --fence-policy, or {}."
HERE = "FencePolicies in the cluster:"
ABSENT = f"{UNKNOWN} no webhook of gpufence is registered"
FIRST = f"{UNKNOWN} webhook configuration first names FencePolicy a"
SECOND = f"{FIRST}; webhook configuration second names"
TWO = f"{HERE} a, b. {CHOOSE}"
DENIED = "not yours (HTTP 403)"
DELETED = "replicas follow FencePolicy b, which does not exist"
_, VALIDATING = KINDS.values()
LIST = (
    "Choose a FencePolicy with --fence-policy, use an account that may list "
    "mutatingwebhookconfigurations and validatingwebhookconfigurations"
)
GET = "Use an account that may get fencepolicies (ClusterRole view)"
CASES: dict[str, tuple[str, dict[str, str], str, str]] = {
    "nothing": ("", {}, "", f"{ABSENT}. {HERE} none. Install gpufence, or {{}}."),
    "no installation": ("ab", {}, "", f"{ABSENT}. {TWO}"),
    "a deleted policy": ("a", {"other": "bb"}, "", f"{DELETED}. {HERE} a. {CREATE}"),
    "two installations": (
        "ab",
        {"first": "aa", "second": "bb"},
        "",
        f"{SECOND} FencePolicy b. {TWO}",
    ),
    "a change": ("ab", {"first": "ba"}, "", f"{FIRST} and b. {TWO}"),
    "an earlier version": (
        "ab",
        {"first": "aa", "second": "  "},
        "",
        f"{SECOND} {UNNAMED}. {TWO}",
    ),
    "no right to list": ("a", {"first": "aa"}, VALIDATING, f"{DENIED}. {LIST}, or {{}}."),
    "no right to get": ("a", {"first": "aa"}, f"{FENCE_POLICIES}/a", f"{DENIED}. {GET}, or {{}}."),
    "no right to list policies": (
        "a",
        {},
        FENCE_POLICIES,
        f"{ABSENT}. Which FencePolicies exist is unknown: {DENIED}. {CHOOSE}",
    ),
}
"""The FencePolicies, the names in both webhook configurations, what is forbidden, and the error."""


@pytest.mark.parametrize("state", CASES)
def test_no_command_guesses_the_policy_of_a_cluster(
    api: FakeApiServer, gpufence: Run, state: str
) -> None:
    existing, registered, forbidden, error = CASES[state]
    for name in existing:
        api.follow(name, "gone")
    for kind, path in enumerate(KINDS.values()):
        if existing:
            api.remove(path, "gone")
        for installation, names in registered.items():
            metadata = {"name": installation, "annotations": {FENCE_POLICY: names[kind].strip()}}
            api.put(path, {"metadata": metadata, "webhooks": [{"name": "a.gpufence.dev"}]})
    api.errors[forbidden] = (403, "not yours")
    said = {command: gpufence(*command.split()) for command in COMMANDS}
    assert said == {
        command: Outcome(2, "", f"Error: {error.format(FILES[command])}\n") for command in COMMANDS
    }


def test_the_command_line_overrides_settings_and_names_one_policy(
    api: FakeApiServer, gpufence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFENCE_POLICY", "new.yaml")
    assert gpufence("check", "--cluster", "pod.yaml").status == 1
    api.follow("a", spec=ALLOWING)
    assert gpufence("check", "--cluster", "--fence-policy", "a", "pod.yaml").status == 0
    missing = gpufence("audit", "--fence-policy", "b")
    problem = "the cluster has no FencePolicy b. FencePolicies in the cluster: a."
    cure = CREATE.format(FILES["audit"])
    assert missing == Outcome(2, "", f"Error: {problem} {cure}\n")
    for arguments, problem in {
        "audit --policy new.yaml --fence-policy a": "--policy and --fence-policy exclude each",
        "doctor --policy new.yaml --fence-policy a": "--policy and --fence-policy exclude each",
        "check --fence-policy a pod.yaml": "--fence-policy need --cluster",
        "policy validate --fence-policy a new.yaml": "--fence-policy need --cluster",
        "policy diff --cluster --fence-policy a new.yaml new.yaml": "--fence-policy names OLD",
    }.items():
        done = gpufence(*arguments.split())
        assert (done.status, done.out) == (2, "")
        assert problem in done.err


def test_validate_warns_of_a_policy_that_nothing_follows(api: FakeApiServer, gpufence: Run) -> None:
    validate = ("policy", "validate", "--cluster", "new.yaml")
    done = gpufence(*validate)
    assert done.status == 0
    assert done.err.startswith(f"Warning: {UNKNOWN} no webhook of gpufence is registered. ")
    api.follow("gpufence")
    assert gpufence(*validate).err == ""
    other = "Warning: replicas do not follow FencePolicy gpufence, but a. Set metadata.name to a"
    assert gpufence(*validate, "--fence-policy", "a").err == f"{other}.\n"
    api.follow("a")
    assert gpufence(*validate).err == f"{other}.\n"


def test_adopt_and_discover_need_no_installation(api: FakeApiServer, gpufence: Run) -> None:
    assert not [path for path in api.objects if path.startswith((FENCE_POLICIES, *KINDS.values()))]
    assert gpufence("adopt", "--output", "json").report["pools"] == ["nvidia"]
    assert gpufence("policy", "discover").status == 0

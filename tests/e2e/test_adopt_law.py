"""What ``gpufence adopt`` and ``audit`` say of a cluster equals what its API server then does.

Every workload and Pod of a dump is sent to a real API server (dry-run), without gpufence and with
it in mode enforce. ``GPUFENCE_MANIFESTS`` names a directory with more manifests.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cases.loading import HERE, load_all
from controlplane import binaries
from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import following
from controlplane.objects import node, taint
from controlplane.versions import CLAIMS
from deciding import required
from policies.kubernetes.templates import find
from running import run_here
from specs import JSON, default_spec, fence_policy, policy_of
from valid_strategies import WORKLOADS
from webhook.cluster.objects import Dump, Reader
from webhook.tools.audit.cluster_audit import audit
from webhook.tools.cli.manifests import read_file

PODS = "/api/v1/namespaces/{}/pods"
CLAIM_PATHS = "/apis/resource.k8s.io/v1/namespaces/{}/{}"
KINDS = "nodes,namespaces,runtimeclasses,deviceclasses,resourceclaims,resourceclaimtemplates"
TOKEN_VOLUME = re.compile(r"kube-api-access-\w+")
DENIED = 'gpufence.dev" denied the request'
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
MORE = os.environ.get("GPUFENCE_MANIFESTS", "")
TODAY = date(2026, 11, 28)
EVERY = 1 if MORE or os.environ.get("GPUFENCE_LAWS") else 4
"""The share of the cases that a usual run sends: every fourth."""

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"
NODES = [
    node(
        "gpu-1",
        labels={"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-L4"},
        taints=[taint(GPU, "present")],
        resources={GPU: "8"},
    ),
    node("open-1", labels={"nvidia.com/gpu.present": "true"}, resources={GPU: "8"}),
    node("mig-1", labels={"mig": "yes"}, resources={"nvidia.com/mig-1g.10gb": "7"}),
    node(
        "amd-1",
        labels={"amd": "yes"},
        taints=[taint("amd.com/gpu")],
        resources={"amd.com/gpu": "8"},
    ),
    node("cpu-1"),
]


def four_pools() -> JSON:
    """Return a policy with four pools, tenants, an exception, an override and settings."""
    spec = default_spec()
    spec["pools"] = [
        {**spec["pools"][0], "allowedNamespaces": {"matchLabels": {"team": "ml"}}},
        {
            "name": "l4",
            "resources": [GPU],
            "taints": [{"key": GPU}],
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
            "largestRequest": 2,
        },
        {"name": "mig", "resources": ["nvidia.com/mig-*"], "nodeSelector": {"mig": "yes"}},
        {
            "name": "amd",
            "resources": [AMD],
            "taints": [{"key": AMD}],
            "nodeSelector": {"amd": "yes"},
            "requires": [{"action": "enforce", "maxCPUPerDevice": 4}],
        },
    ]
    spec["overrides"] = [{"namespaces": ["other-*"], "hardening": {"runAsUser": 1000}}]
    return spec


Key = tuple[str, str, str]


class Sent(NamedTuple):
    """An object of the dump: its manifest, and as an API server without gpufence stores it."""

    kind: str
    path: str
    namespace: str
    name: str
    manifest: JSON
    stored: JSON

    @property
    def key(self) -> Key:
        return self.kind, self.namespace, self.name


class Fate(NamedTuple):
    """What an API server does: denies, changes, and the users that it changes by container."""

    denied: bool
    changed: bool = False
    users: frozenset[tuple[str, int | None, int | None]] = frozenset()


def create(api: Api, path: str, obj: JSON) -> JSON:
    return api.request("POST", f"{path}?dryRun=All", obj)


def pod_of(each: Sent) -> JSON | None:
    """Return the Pod that a workload makes, without the node that the scheduler sets."""
    if each.kind == "Pod":
        its: JSON = copy.deepcopy(each.manifest)
        its["spec"].pop("nodeName", None)
        return its
    templates = find(each.manifest).templates
    if len(templates) != 1:
        return None
    raw = copy.deepcopy(templates[0].raw)
    metadata = {
        key: value
        for key, value in (raw.get("metadata") or {}).items()
        if key in ("labels", "annotations")
    }
    spec = {**raw["spec"], **({"restartPolicy": "Always"} if each.kind == "DaemonSet" else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": "p"}, "spec": spec}


def of_daemon_set(its: JSON) -> JSON:
    """Return a Pod as the DaemonSet controller creates it for a node."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
    its["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    affinity = its["spec"].setdefault("affinity", {})
    affinity |= required("metadata.name In gpu-1")["affinity"]
    return its


def users(obj: JSON) -> dict[str, int | None]:
    spec = obj["spec"]
    general = (spec.get("securityContext") or {}).get("runAsUser")
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return {
        each["name"]: (each.get("securityContext") or {}).get("runAsUser", general)
        for each in containers
    }


def comparable(obj: JSON) -> str:
    """Return a Pod without what the API server generates for each request."""
    metadata = obj["metadata"]
    known = {**obj["spec"], "annotations": metadata.get("annotations")}
    known["tolerations"] = sorted(map(json.dumps, known.get("tolerations") or ()))
    return TOKEN_VOLUME.sub("token", json.dumps(known, sort_keys=True))


def manifests() -> Iterator[JSON]:
    files = sorted(HERE.rglob("*.yaml"))[::EVERY]
    for file in [*files, *(sorted(Path(MORE).rglob("*.y*ml")) if MORE else ())]:
        with suppress(yaml.YAMLError, UnicodeDecodeError):
            documents: list[Any] = load_all(file.read_text())
            yield from (each for each in documents if isinstance(each, dict))


@pytest.fixture(scope="module")
def plain(control_plane: ControlPlane) -> Iterator[tuple[list[Sent], list[JSON]]]:
    """The objects that a cluster without gpufence accepts, and what else the dump has."""
    cluster = control_plane
    spaces = [
        cluster.create_namespace("ml-", {"team": "ml"}),
        cluster.create_namespace("other-"),
    ]
    with cluster.nodes(*NODES):
        sent = [*_accepted(cluster.api, spaces)]
        kinds = (
            "nodes,namespaces,runtimeclasses,deviceclasses,resourceclaims,resourceclaimtemplates"
        )
        listed = json.loads(cluster.kubectl("get", "-A", "-o", "json", kinds).stdout)["items"]
        yield sent, listed


def _accepted(api: Api, spaces: list[str]) -> Iterator[Sent]:
    paths = {("v1", "Pod"): PODS, **{(v, k): path for k, (v, path) in WORKLOADS.items()}}
    seen: Counter[str] = Counter()
    for number, obj in enumerate(manifests()):
        kind, namespace = str(obj.get("kind")), spaces[number % len(spaces)]
        metadata = obj.get("metadata")
        path = paths.get((str(obj.get("apiVersion")), kind), "")
        if not isinstance(metadata, dict) or not (path or kind.startswith("ResourceClaim")):
            continue
        seen[kind] += 1
        kept = {k: metadata[k] for k in ("labels", "annotations") if k in metadata}
        made = {**obj, "metadata": {**kept, "name": f"n-{seen[kind]}", "namespace": namespace}}
        made.pop("status", None)
        with suppress(ApiError):
            if not path:
                claim = {**made, "metadata": {"name": metadata.get("name")}}
                api.request("POST", CLAIM_PATHS.format(namespace, f"{kind.lower()}s"), claim)
                continue
            yield Sent(
                kind,
                path.format(namespace),
                namespace,
                made["metadata"]["name"],
                made,
                create(api, path.format(namespace), made),
            )


def stored_pods(cluster: ControlPlane, sent: list[Sent]) -> dict[Key, JSON | None]:
    """Return for each object the Pod that is stored; ``None`` if its Pod or itself is denied.

    Without a Pod, it is empty. What the API server rejects by itself is left out.
    """
    found: dict[Key, JSON | None] = {}
    operator = replace(cluster.api, user=DAEMON_SET_CONTROLLER)
    for each in sent:
        its = pod_of(each)
        api, url = cluster.api, PODS.format(each.namespace)
        if its is not None and each.kind == "DaemonSet":
            api, its = operator, of_daemon_set(its)
        try:
            if each.kind != "Pod":
                create(cluster.api, each.path, each.manifest)
            found[each.key] = {} if its is None else create(api, url, its)
        except ApiError as error:
            if DENIED not in str(error):
                if "webhook" in str(error):
                    raise
                continue
            found[each.key] = None
    return found


def fate(before: JSON, after: JSON | None) -> Fate:
    if after is None:
        return Fate(denied=True)
    if not after:
        return Fate(denied=False)
    old, new = users(before), users(after)
    other = frozenset((name, old[name], new[name]) for name in old if old[name] != new[name])
    return Fate(False, comparable(before) != comparable(after), other)


def differences(each: Sent, said: tuple[str, JSON] | None, real: Fate) -> Iterator[str]:
    """Yield what adopt says of an object, and what the API server does instead."""
    name, entry = said or ("unchanged", {})
    if name == "unjudged":
        if not entry["why"]:
            yield "unjudged without a reason"
        return
    if (name == "denied") is not real.denied:
        yield f"{name}, but {'denied' if real.denied else 'admitted'}"
    if real.denied or name == "denied":
        return
    told = frozenset((u["container"], u["from"], u["to"]) for u in entry.get("users", ()))
    if told != real.users:
        yield f"users {sorted(map(str, told))}, but {sorted(map(str, real.users))}"
    if each.kind == "DaemonSet":
        return
    if (
        name in ("changedOtherwise", "anotherUser")
    ) is not real.changed and name != "runsOnGPUNodes":
        yield f"{name}, but {'changed' if real.changed else 'unchanged'}"


def dump(path: Path, sent: list[Sent], listed: list[JSON]) -> None:
    """Write a dump. Some of its Pods run on nodes, and no object has a UID."""
    items = copy.deepcopy(listed)
    for number, each in enumerate(sent):
        obj = {
            "apiVersion": each.manifest["apiVersion"],
            "kind": each.kind,
            **copy.deepcopy(each.stored),
        }
        obj["metadata"].pop("uid", None)
        if each.kind == "Pod" and number % 2:
            obj["spec"]["nodeName"] = NODES[number % len(NODES)]["metadata"]["name"]
            obj["status"] = {"phase": "Running"}
        items.append(obj)
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@CLAIMS
@pytest.mark.parametrize("policy", ["default", "discovered", "four pools"])
def test_law_what_adopt_says_is_what_the_api_server_does(
    control_plane: ControlPlane,
    found_binaries: dict[str, Path],
    plain: tuple[list[Sent], list[JSON]],
    policy: str,
    tmp_path: Path,
) -> None:
    sent, listed = plain
    dumped, written = tmp_path / "dump.json", tmp_path / "policy.yaml"
    dump(dumped, sent, listed)
    version = binaries.version_of(found_binaries["kube-apiserver"])
    minor = int(version.split(".")[1])
    adopt = ("adopt", "--dump", dumped, "--kubernetes-version", version, "-o", "json", "--out")
    spec = default_spec() if policy == "default" else four_pools()
    if policy == "discovered":
        first = run_here(*adopt, tmp_path / "first")
        assert first.status == 0, first.err
        document = yaml.safe_load((tmp_path / "first" / "policy.yaml").read_text())
        spec = {**document["spec"], "mode": "enforce"}
    written.write_text(yaml.safe_dump(fence_policy(spec)))
    done = run_here(*adopt, tmp_path / "out", "--policy", written)
    assert done.status == 0, done.err
    report = json.loads(done.out)
    names = ("denied", "anotherUser", "changedOtherwise", "unjudged", "runsOnGPUNodes")
    said = {
        (entry["kind"], entry["namespace"], entry["name"]): (name, entry)
        for name in names
        for entry in report[name]
    }
    audited = asyncio.run(
        audit(Reader(Dump("dump", read_file(str(dumped)), minor)), policy_of(spec), TODAY)
    )
    verdicts = {
        (each.kind.kind, *each.owned.identity[2:]): each.verdict for each in audited.subjects
    }
    before = stored_pods(control_plane, sent)
    with following(control_plane, tmp_path, spec):
        after = stored_pods(control_plane, sent)
    wrong, tally = [], Counter[str]()
    for each in sent:
        old = before.get(each.key)
        if old is None or each.key not in after:
            continue
        own = said.get(each.key)
        tally[own[0] if own else "unchanged"] += 1
        real = fate(old, after[each.key])
        wrong += [f"{each.key}: {problem}" for problem in differences(each, own, real)]
        if (verdicts[each.key] == "denied") is not real.denied:
            wrong.append(f"{each.key}: audit says {verdicts[each.key]}")
    print(f"\n{policy}: {tally.total()} objects: {dict(tally)}; {len(wrong)} differences")
    assert not wrong, "\n".join(wrong)
    # The discovered policy allows root, as many cases need it.
    assert min(tally["denied"], tally["anotherUser"] + tally["changedOtherwise"]) > 0

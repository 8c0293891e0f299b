"""The policy's mode on a real API server: what audit records is what enforce does.

One replica serves a policy in mode audit. It enforces in one namespace, and exempts another, in
which objects are stored as without gpufence. Each object is sent to all three (dry-run).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from urllib.request import urlopen

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import Fence, running
from controlplane.poll import until
from laws.profile import live_law as law
from policies.registry import MUTATIONS
from policies.shipped import default_policy_text
from strategies import JSON
from valid_strategies import WORKLOADS, pod, valid_specs, workload

FINDING = re.compile(
    r'^gpufence_findings_total\{action="(\w+)",rule="([a-z-]+)"\} (\S+)$', re.MULTILINE
)
RANDOM = re.compile(r"kube-api-access-\w+")
MUTATION_IDS = {mutation.id for mutation in MUTATIONS}
PODS = "/api/v1/namespaces/{}/pods"


class Modes(NamedTuple):
    """Three namespaces: without gpufence, in mode audit, and in mode enforce."""

    api: Api
    fence: Fence
    without: str
    audited: str
    enforced: str

    def send(self, path: str, namespace: str, obj: JSON) -> tuple[object, Counter[str]]:
        """Create the object (dry-run).

        Returns what is stored without metadata, ``denied`` or ``invalid``, and the number of new
        findings by ``action rule``.
        """
        before = self._findings()
        stored: object
        try:
            created = self.api.request("POST", f"{path.format(namespace)}?dryRun=All", obj)
            uid = created.pop("metadata")["uid"]
            stored = json.loads(RANDOM.sub("token", json.dumps(created).replace(uid, "uid")))
        except ApiError as error:
            stored = "denied" if "gpufence.dev" in str(error) else "invalid"
        return stored, self._findings() - before

    def _findings(self) -> Counter[str]:
        with urlopen(f"http://127.0.0.1:{self.fence.server.metrics_port}/metrics") as page:
            text = page.read().decode()
        found = FINDING.findall(text)
        return Counter({f"{action} {rule}": int(float(count)) for action, rule, count in found})


@pytest.fixture(scope="module")
def modes(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Modes]:
    without, audited, enforced = (
        control_plane.create_namespace(f"{name}-") for name in ("without", "audited", "enforced")
    )
    document: JSON = yaml.safe_load(default_policy_text())
    document["mode"] = "audit"
    document["exemptions"]["namespaces"].append(without)
    # The probe for active webhooks is created in the namespace default.
    document["overrides"] = [{"namespaces": [enforced, "default"], "mode": "enforce"}]
    directory = tmp_path_factory.mktemp("mode")
    with running(control_plane, directory, document) as fence, fence.registered():
        yield Modes(control_plane.api, fence, without, audited, enforced)


def test_law_audit_changes_nothing_and_records_what_enforce_does(modes: Modes) -> None:
    tally: Counter[str] = Counter()
    kinds = ["Pod", *sorted(WORKLOADS)]

    @law
    @given(spec=valid_specs(), kind=st.sampled_from(kinds))
    def sent(spec: JSON, kind: str) -> None:
        path = PODS if kind == "Pod" else WORKLOADS[kind][1]
        obj = pod(spec) if kind == "Pod" else workload(kind, "work", spec)
        without, unseen = modes.send(path, modes.without, obj)
        assert not unseen
        audited, recorded = modes.send(path, modes.audited, obj)
        assert audited == without
        enforced, found = modes.send(path, modes.enforced, obj)
        would = Counter({key.removeprefix("would_"): n for key, n in recorded.items()})
        changes = {key for key in would if key.split()[1] in MUTATION_IDS}
        assert Counter({key: n for key, n in would.items() if key not in changes}) == found
        denies = any(key.startswith("enforce ") for key in found)
        assert (enforced == "denied") is denies
        if kind == "Pod" and not denies:
            assert (enforced != without) is bool(changes)
        outcome = "denied" if denies else "changed" if changes else "as written"
        tally["invalid" if without == "invalid" else outcome] += 1

    sent()
    print(f"\nmode audit: {dict(tally)}")
    assert min(tally["denied"], tally["changed"], tally["as written"]) > 0


def test_pods_wait_for_a_replica_only_where_the_mode_is_enforce(modes: Modes) -> None:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    gpu_pod = pod({"containers": [{"name": "a", "image": "a", "resources": resources}]})

    def outcome(namespace: str) -> str:
        try:
            modes.api.request("POST", f"{PODS.format(namespace)}?dryRun=All", gpu_pod)
        except ApiError as error:
            return str(error)
        return "created"

    modes.fence.register("https://127.0.0.1:1")
    try:
        until(lambda: "failed calling webhook" in outcome(modes.enforced), "the outage")
        assert outcome(modes.audited) == "created"
    finally:
        modes.fence.register()

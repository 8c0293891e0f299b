"""Nothing that gpufence does to itself costs a single admission: each under a steady load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from controlplane.api import Api, ApiError, Object
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.poll import until
from policies.shipped import default_policy_text
from release.load import GPU_POD, Load
from release.release import WEBHOOKS, Release, release
from specs import default_spec

pytestmark = [
    pytest.mark.timeout(300 + 10 * int(os.environ.get("GPUFENCE_LOAD_SECONDS", "0"))),
]

SECONDS = float(os.environ.get("GPUFENCE_LOAD_SECONDS", "6"))
"""How long each load goes on at least."""


class ConfigMapVolume:
    """A mounted ConfigMap, as a kubelet updates it: a new directory and a swapped link."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.file = directory / "policy.yaml"
        self.file.symlink_to(Path("..data") / "policy.yaml")
        self._directory = directory
        self._version = 0

    def write(self, text: str) -> None:
        self._version += 1
        version = self._directory / f"..{self._version}"
        version.mkdir()
        (version / "policy.yaml").write_text(text)
        link = self._directory / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._directory / "..data")


@dataclass
class Pair:
    """Two replicas behind one address, and what they are started with."""

    release: Release
    policy: ConfigMapVolume
    flags: tuple[str, ...]
    replicas: list[Replica]


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two replicas whose serving certificate is renewed every few seconds in these tests."""
    directory = tmp_path_factory.mktemp("release")
    policy = ConfigMapVolume(directory / "policy")
    policy.write(default_policy_text())
    flags = (
        *("--policy", str(policy.file)),
        # Valid from 12 s before its issue to 12 s after: 2/3 of that are over after 4 s.
        *("--certificate-lifetime", "12s"),
        *("--ca-propagation-delay", "2s", "--ca-overlap", "3s"),
    )
    with release(control_plane, directory) as released, released.replicas(2, *flags) as replicas:
        pair = Pair(released, policy, flags, list(replicas))
        yield pair
        for replica in pair.replicas:
            replica.stop()


def leaf(released: Release) -> x509.Certificate:
    return x509.load_pem_x509_certificate(released.secret()["tls.crt"])


def test_frequent_leaf_certificate_renewal_fails_no_admission(pair: Pair, namespace: str) -> None:
    released = pair.release
    with Load(released.cluster.api, namespace) as load:
        seen = set()

        def renewed_twice() -> bool:
            seen.add(leaf(released).serial_number)
            return len(seen) >= 3

        until(renewed_twice, "the leaf to be renewed twice")
    load.check(f"{len(seen)} leaves, one after the other")


def test_a_rotation_of_the_ca_fails_no_admission(pair: Pair, namespace: str) -> None:
    released = pair.release
    with Load(released.cluster.api, namespace) as load:
        for _ in load.seconds(SECONDS / 3):
            pass
        before = released.secret()
        released.run("certs", "rotate", "--namespace", released.namespace)

        def with_the_next() -> dict[str, bytes]:
            found = released.secret()
            return found if found["ca.crt"] != before["ca.crt"] else {}

        during = until(with_the_next, "the next one to sign")
        assert during["old-ca.crt"] == before["ca.crt"]
        assert "next-ca.key" not in during
        until(lambda: "old-ca.crt" not in released.secret(), "the old one to be dropped")
        after = released.secret()
        until(
            lambda: released.bundles() == [after["ca.crt"]] * WEBHOOKS,
            "callers to trust only the new",
        )
        for _ in load.seconds(SECONDS / 3):
            pass
    steps = ["promote-next-authority", "retire-old-authority"]
    until(lambda: set(steps) <= set(changes(pair)), "the log lines")
    assert sorted(change for change in changes(pair) if change in steps) == steps
    assert before["ca.key"] not in after.values()
    load.check("a rotation of the CA")


def changes(pair: Pair) -> list[str]:
    """Return the changes of certificates that the replicas have logged."""
    return [
        event["change"]
        for replica in pair.replicas
        for event in replica.events("certificate change")
    ]


SPEC = default_spec()
SECOND_POOL = {
    "name": "amd",
    "resources": ["amd.com/gpu"],
    "taints": [{"key": "amd.com/gpu"}],
    "nodeSelector": {"amd.com/gpu.present": "true"},
}
SECOND = SPEC | {
    "pools": [*SPEC["pools"], SECOND_POOL],
    "failurePolicy": "Ignore",
    "customWorkloads": [],
}
AMD_POD = {
    **GPU_POD,
    "spec": {
        "containers": [
            {"name": "main", "image": "rocm", "resources": {"limits": {"amd.com/gpu": "1"}}}
        ]
    },
}


def test_policy_reloads_take_effect_and_fail_no_admission(pair: Pair, namespace: str) -> None:
    released, policy, replicas = pair.release, pair.policy, pair.replicas
    api, path = released.cluster.api, f"/api/v1/namespaces/{namespace}/pods"
    with Load(api, namespace) as load:
        assert not tolerates(api.request("POST", path, AMD_POD), "amd.com/gpu")
        policy.write(yaml.safe_dump(SECOND))
        until(
            lambda: tolerates(try_to_create(api, f"{path}?dryRun=All", AMD_POD), "amd.com/gpu"),
            "the new policy to be in force",
        )
        until(lambda: generations(pair) == [2, 2], "both to have it")
        until(
            lambda: "amd.com/gpu" in str(released.configurations()[1]), "the conditions to follow"
        )
        until(lambda: failure_policies(released) == ["Ignore", "Ignore"], "both to follow")
        until(lambda: not reviews_custom_resources(released), "an unneeded webhook to go")

        policy.write("kind: FencePolicy\nspec: {poolz: []}\n")
        refused = 'gpufence_policy_reload_total{result="rejected"}'
        until(lambda: [r.metric(refused) for r in replicas] == [1, 1], "it to be refused")
        for replica in replicas:
            status, text = replica.get("/readyz")
            assert status == 200
            assert text.startswith("ok\npolicy reload: ")
            assert "poolz: unknown field" in text
            assert replica.metric("gpufence_policy_generation") == 2
            assert replica.metric("gpufence_policy_stale") == 1
            # A replica logs in a thread of its own.
            [event] = until(partial(replica.events, "policy reload failed"), "the log line")
            assert "poolz: unknown field" in event["problem"]
        assert tolerates(api.request("POST", path, AMD_POD), "amd.com/gpu")

        policy.write(default_policy_text())
        until(lambda: generations(pair) == [3, 3], "the cure")
        until(lambda: failure_policies(released) == ["Fail", "Fail"], "the registration to follow")
        until(lambda: reviews_custom_resources(released), "the webhook to be back")
        until(
            lambda: [r.get("/readyz") for r in replicas] == [(200, "ok\n")] * 2,
            "the problem to be gone",
        )
        for _ in load.seconds(SECONDS / 3):
            pass
    load.check("two policy reloads and a rejected one")


def test_a_killed_replica_fails_only_in_flight_admissions(pair: Pair, namespace: str) -> None:
    released = pair.release
    with Load(released.cluster.api, namespace) as load:
        for _ in load.seconds(SECONDS / 3):
            pass
        pair.replicas[0].kill()
        until(lambda: released.service.endpoints == 1, "the endpoint to go")
        failed = len(load.failures)
        created = load.created
        for _ in load.seconds(SECONDS / 3):
            pass
        after = len(load.failures) - failed
    print(
        f"\na killed replica: {load.created} GPU Pods created, {failed} failed before its endpoint"
    )
    print(f"was gone, {after} after")
    assert after <= 2  # those that had been sent to it by then
    assert load.created > created


def generations(pair: Pair) -> list[float]:
    return [replica.metric("gpufence_policy_generation") for replica in pair.replicas]


def try_to_create(api: Api, path: str, pod: Object) -> Object:
    """Return what is created, and nothing where it is denied.

    While one replica has the new policy and the other has not yet, a Pod of the new pool may be
    mutated by the one and judged by the other.
    """
    try:
        return api.request("POST", path, pod)
    except ApiError:
        return {"spec": {}}


def tolerates(pod: dict[str, object], key: str) -> bool:
    return f"'key': '{key}'" in str(pod["spec"])


def failure_policies(released: Release) -> list[str]:
    """Return the outcome for Pods while no replica answers, as registered."""
    return [each["webhooks"][0]["failurePolicy"] for each in released.configurations()]


def reviews_custom_resources(released: Release) -> bool:
    """Return whether the webhook for custom resources is registered."""
    return "custom-workloads.gpufence.dev" in str(released.configurations()[1])

"""Nothing that gpufence does to itself costs a single admission: each under a steady load."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cryptography import x509

from controlplane import policies
from controlplane.api import Api, ApiError, Object
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.poll import until
from release.load import GPU_POD, Load
from release.release import CA, SERVING, Release, Running, release
from specs import default_spec

pytestmark = [
    pytest.mark.timeout(300 + 10 * int(os.environ.get("GPUFENCE_LOAD_SECONDS", "0"))),
]

SECONDS = float(os.environ.get("GPUFENCE_LOAD_SECONDS", "3"))
"""How long each load goes on at least."""


@dataclass
class Pair:
    """Two replicas behind one address, their controller, and the policy of all three."""

    release: Release
    running: Running

    @property
    def replicas(self) -> list[Replica]:
        return self.running.replicas

    def use(self, spec: Object) -> None:
        policies.use(self.release.cluster.api, spec)


CONTROLLER = (
    # Valid from 30 s before its issue to 20 s after: 2/3 of that are over after 3.3 s.
    *("--certificate-lifetime", "20s"),
    *("--ca-propagation-delay", "2s", "--ca-overlap", "5s"),
)


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two replicas whose serving certificate is renewed every few seconds in these tests."""
    directory = tmp_path_factory.mktemp("release")
    with (
        release(control_plane, directory) as released,
        released.replicas(2, controller=CONTROLLER) as running,
    ):
        yield Pair(released, running)


def leaf(released: Release) -> x509.Certificate:
    return x509.load_pem_x509_certificate(released.secret()["tls.crt"])


@pytest.mark.slow("waits until two CAs have overlapped")
@pytest.mark.parametrize("lost", [[SERVING], [CA, SERVING]], ids=["pair", "both"])
def test_a_rotation_of_the_ca_and_a_lost_secret_fail_no_admission(
    pair: Pair, namespace: str, lost: list[str]
) -> None:
    """A rotation is the loss of the CA: the controller creates another one.

    In test_wrong_clock.py, it is lost alone.
    """
    released = pair.release
    before = released.secret(), released.secret(CA)
    with Load(released.cluster.api, namespace) as load:
        for _ in load.seconds(SECONDS / 3):
            pass
        for name in lost:
            released.delete_secret(name)
        until(lambda: set(released.secrets()) >= {CA, SERVING}, "both Secrets")

        def signs() -> bool:
            pair, authority = released.secret(), released.secret(CA)
            is_new = (authority != before[1]) == (CA in lost)
            return is_new and pair["ca.crt"] == authority["ca.crt"] and pair != before[0]

        until(signs, "the CA in the Secret to sign")
        authority = released.secret(CA)["ca.crt"]
        until(lambda: set(released.bundles()) == {authority}, "callers to trust only that")
        for _ in load.seconds(SECONDS / 3):
            pass
    load.check(f"a loss of {' and '.join(lost)}")


def test_nothing_fails_while_the_controller_is_gone(pair: Pair, namespace: str) -> None:
    """Renewal and repair wait for it, admission does not."""
    released = pair.release
    pair.running.controller.kill()
    with Load(released.cluster.api, namespace) as load:
        for _ in load.seconds(SECONDS):
            pass
        next_one = released.controller(*CONTROLLER)
        pair.running.controller.process = next_one.process
        pair.running.controller.metrics_port = next_one.metrics_port
        next_one.start()
        serial = leaf(released).serial_number
        until(lambda: leaf(released).serial_number != serial, "a renewal by the next one")
    load.check(f"{SECONDS:.0f} s without a controller")


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
    released = pair.release
    api, path = released.cluster.api, f"/api/v1/namespaces/{namespace}/pods"
    with Load(api, namespace) as load:
        assert not tolerates(api.request("POST", path, AMD_POD), "amd.com/gpu")
        pair.use(SECOND)
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

        twin = SPEC["pools"][0] | {"name": "twin"}
        with pytest.raises(ApiError, match="in two pools"):
            pair.use(SECOND | {"pools": [*SPEC["pools"], twin]})
        assert tolerates(api.request("POST", path, AMD_POD), "amd.com/gpu")

        pair.use(SPEC)
        until(lambda: generations(pair) == [3, 3], "the former policy")
        until(lambda: failure_policies(released) == ["Fail", "Fail"], "the registration to follow")
        until(lambda: reviews_custom_resources(released), "the webhook to be back")
        for _ in load.seconds(SECONDS / 3):
            pass
    load.check("two policy reloads and a denied one")


def test_a_policy_that_changes_every_second_fails_no_admission(pair: Pair, namespace: str) -> None:
    """It also measures how soon a change counts in the replicas."""
    api, delays = pair.release.cluster.api, []
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    with Load(api, namespace) as load:
        for number, _ in enumerate(load.seconds(SECONDS)):
            spec = SPEC | {"hardening": {"runAsUser": 2000 + number}}
            began = time.monotonic()
            pair.use(spec)

            def counts(user: int = 2000 + number) -> bool:
                pod = try_to_create(api, path, GPU_POD)
                return bool(pod.get("spec", {}).get("securityContext", {}).get("runAsUser") == user)

            until(counts, "the change to count")
            delays.append(time.monotonic() - began)
        pair.use(SPEC)
    load.check(f"{len(delays)} changes of the policy")
    print(f"a change counts after {statistics.median(delays):.2f} s, at most {max(delays):.2f} s")


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

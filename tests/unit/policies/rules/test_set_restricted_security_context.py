"""The mutation `restricted-security-context`: what it adds, and what it must leave alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from deciding import GPU, policy
from deciding import pod as gpu_pod
from pod_security_strategies import EVICTABLE, HARDENING, creatable_pods, pods
from policies.context import Context
from policies.decision import patched
from policies.engine import decide, mutate, validate
from policies.facts import Facts, Request
from policies.policy import Hardening, Policy
from policies.rules.check_unrestricted_gpu_pod import check
from policies.rules.set_restricted_security_context import USER_ANNOTATION, changes
from reviewing import default_policy
from typed import hardened, operations_of, pod_of

JSON = dict[str, Any]


def hardening(*settings: Any, **others: Any) -> Policy:
    """Return a policy without pools, with this hardening."""
    return Policy(pools=(), hardening=Hardening(*settings, **others))


POLICY = Policy(pools=())
POOL = default_policy().pools[0]
FILLED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}
IDENTITY = {"runAsNonRoot": True, "runAsUser": 65532}
WINDOWS = {"name": "windows"}


def container(context: JSON | None = None, name: str = "train") -> JSON:
    """Return a container with this security context, or none."""
    bare = {"name": name, "image": "registry.example/app"}
    return bare if context is None else {**bare, "securityContext": context}


def pod(context: JSON | None = None, *containers: JSON, **spec: Any) -> JSON:
    """Return a Pod with this security context, or none, and these containers, or a bare one."""
    if context is not None:
        spec["securityContext"] = context
    return {
        "metadata": {"name": "pod"},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def context(policy: Policy, request: Request | None = None) -> Context:
    return Context(policy, request or Request(), Facts())


def mutated_debug_containers(old: JSON, *added: JSON, policy: Policy = POLICY) -> list[JSON]:
    """Return what the mutation makes of ephemeral containers that a request adds to a Pod."""
    before = copy.deepcopy(old)
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [
        *(new["spec"].get("ephemeralContainers") or []),
        *copy.deepcopy(added),
    ]
    request = Request(operation="UPDATE", subresource="ephemeralcontainers", old=old)
    pod = pod_of(new)
    new = patched(new, operations_of(pod, changes(pod, context(policy, request))))
    assert old == before
    ephemeral: list[JSON] = new["spec"].pop("ephemeralContainers")
    kept = before["spec"].pop("ephemeralContainers", None) or []
    assert new == before, "everything else is immutable in such a request"
    assert ephemeral[: len(kept)] == kept, "so are the ephemeral containers that exist"
    return ephemeral[len(kept) :]


def contexts(raw: JSON, kind: str = "containers") -> list[JSON | None]:
    return [container.get("securityContext") for container in raw["spec"][kind]]


class TestUserNamespace:
    POLICY = hardening(host_users=False)

    def test_a_pod_without_a_user_gets_a_user_namespace_instead(self) -> None:
        after = hardened(pod(), self.POLICY)
        assert after["spec"]["hostUsers"] is False
        assert after["spec"]["securityContext"] == SECCOMP
        assert "annotations" not in after["metadata"]
        assert list(check(pod_of(after), context(self.POLICY))) == []

    @pytest.mark.parametrize(
        ("raw"),
        [
            pod({"runAsUser": 7}),
            pod(None, container({"runAsUser": 7}), container()),
            pod(hostUsers=True),
            pod(hostNetwork=True),
            pod(hostPID=True),
            pod(hostIPC=True),
            pod(os=WINDOWS),
            pod(None, container() | {"volumeDevices": [{"name": "a"}]}, container()),
        ],
    )
    def test_other_pods_get_a_user(self, raw: JSON) -> None:
        after = hardened(raw, self.POLICY)
        assert after["spec"].get("hostUsers") == raw["spec"].get("hostUsers")
        assert after["spec"]["securityContext"]["runAsNonRoot"] is True

    @pytest.mark.parametrize(
        ("host_users", "of_pod", "gets_user"),
        [(False, False, False), (False, None, True), (None, False, True)],
    )
    def test_a_debug_container_gets_a_user_outside_of_a_user_namespace(
        self, host_users: Literal[False] | None, of_pod: bool | None, gets_user: bool
    ) -> None:
        (added,) = mutated_debug_containers(
            pod(hostUsers=of_pod),
            container(name="debug"),
            policy=hardening(host_users=host_users),
        )
        assert ("runAsUser" in added["securityContext"]) is gets_user


@pytest.mark.parametrize(
    ("own", "gets_user"),
    [
        ({}, False),
        ({"runAsUser": 7}, True),
        ({"runAsNonRoot": True}, True),
    ],
)
def test_a_container_that_locks_memory_keeps_the_user_of_its_image(
    own: JSON, gets_user: bool
) -> None:
    locking = container({**own, "capabilities": {"add": ["IPC_LOCK"]}})
    after = hardened(pod(None, locking))
    assert after["spec"]["securityContext"].get("runAsNonRoot", False) is gets_user


class TestWhichHardening:
    BASELINE = Hardening("baseline")
    WARNING = Hardening("baseline", "restricted")
    OFF = Hardening("off")

    @pytest.mark.parametrize(
        ("of_pools", "profiles"),
        [
            ((None,), ("restricted", "off")),
            ((BASELINE,), ("baseline", "off")),
            ((OFF, BASELINE), ("baseline", "off")),
            ((BASELINE, WARNING, OFF), ("baseline", "restricted")),
            ((WARNING, None), ("restricted", "off")),
        ],
    )
    def test_the_strictest_of_the_pools_counts(
        self, of_pools: tuple[Hardening | None, ...], profiles: tuple[str, str]
    ) -> None:
        pools = [
            replace(POOL, name=f"p{index}", node_selector={"pool": f"p{index}"}, hardening=own)
            for index, own in enumerate(of_pools)
        ]
        policy = Policy(pools=tuple(pools))
        found = policy.hardening_of(policy.general, pools)
        assert (found.level, found.warn) == profiles

    def test_off_adds_nothing_and_accepts_everything(self) -> None:
        policy = hardening("off")
        root = pod({"runAsUser": 0}, container({"privileged": True}))
        assert hardened(root, policy) == root
        assert list(check(pod_of(root), context(policy))) == []


class TestDebugContainer:
    def test_a_debug_container_gets_the_ids_of_the_policy(self) -> None:
        policy = hardening(run_as_user=None, run_as_group=3000, fs_group=2000)
        given = {"runAsUser": 5, "capabilities": {"add": ["SYS_PTRACE"]}}
        assert mutated_debug_containers(pod(), container(given, "debug"), policy=policy) == [
            container(
                {
                    "runAsUser": 5,
                    "runAsNonRoot": True,
                    "runAsGroup": 3000,
                    "capabilities": {"add": ["SYS_PTRACE"], "drop": ["ALL"]},
                    "allowPrivilegeEscalation": False,
                    **SECCOMP,
                },
                "debug",
            )
        ]

    def test_existing_debug_containers_are_not_changed(self) -> None:
        old = pod(None, ephemeralContainers=[container(name="first"), container(name="second")])
        (added,) = mutated_debug_containers(old, container(name="third"))
        assert added["securityContext"] == {**IDENTITY, **SECCOMP, **FILLED}

    def test_explicit_root_of_a_debug_container_or_its_pod_is_kept(self) -> None:
        assert mutated_debug_containers(pod(), container({"runAsUser": 0}, "debug")) == [
            container({"runAsUser": 0, **SECCOMP, **FILLED}, "debug")
        ]
        assert mutated_debug_containers(
            pod({"runAsUser": 0, **SECCOMP}), container(name="debug")
        ) == [container(FILLED, "debug")]

    def test_a_windows_debug_container_gets_only_run_as_non_root(self) -> None:
        assert mutated_debug_containers(pod(os=WINDOWS), container(name="debug")) == [
            container({"runAsNonRoot": True}, "debug")
        ]
        assert mutated_debug_containers(
            pod({"runAsNonRoot": True}, os=WINDOWS), container(name="debug")
        ) == [container(name="debug")]

    @settings(max_examples=200)
    @given(raw=creatable_pods(ephemeral=True), count=st.integers(0, 1), policy=HARDENING)
    def test_only_new_debug_containers_change(self, raw: JSON, count: int, policy: Policy) -> None:
        old = copy.deepcopy(raw)
        added = old["spec"]["ephemeralContainers"][count:]
        del old["spec"]["ephemeralContainers"][count:]
        filled = mutated_debug_containers(old, *added, policy=policy)
        for before, after in zip(added, filled, strict=True):
            assert_keeps(before, after)
            assert_starts_as_before(raw["spec"], before, raw["spec"], after)
        assert mutated_debug_containers(old, *filled, policy=policy) == filled


@settings(max_examples=300)
@given(raw=pods(), policy=HARDENING)
def test_a_mutation_keeps_fields_and_root_containers_and_causes_no_violations(
    raw: JSON, policy: Policy
) -> None:
    after = hardened(raw, policy)
    assert hardened(after, policy) == after, "a second call changes nothing"
    assert_keeps(raw, after)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for before, then in zip(
            raw["spec"].get(kind) or (), after["spec"].get(kind) or (), strict=True
        ):
            assert_starts_as_before(raw["spec"], before, after["spec"], then)
    violations = [
        {finding.reason for finding in check(pod_of(obj), context(policy))} for obj in (raw, after)
    ]
    assert violations[1] <= violations[0]


@settings(max_examples=300)
@given(raw=creatable_pods(), policy=HARDENING | st.just(hardening("baseline")))
def test_annotations_say_who_runs_a_pod_and_that_its_home_may_be_lost(
    raw: JSON, policy: Policy
) -> None:
    after = hardened(raw, policy)
    before, then = ((each["metadata"].get("annotations") or {}) for each in (raw, after))
    containers = [c for kind in ("initContainers", "containers") for c in after["spec"][kind]]
    users = {effective("runAsUser", after["spec"], each) for each in containers}
    assert then.get(USER_ANNOTATION) in (None, *map(str, users))
    event(f"{before.get(USER_ANNOTATION)} becomes {then.get(USER_ANNOTATION)}")
    assert before.get("long") == then.get("long")
    if after["spec"]["volumes"] != raw["spec"]["volumes"] and "long" not in then:
        known = (before.get(EVICTABLE) or "gpufence-home").split(",")
        assert then[EVICTABLE].split(",") == list(dict.fromkeys([*known, "gpufence-home"]))
    else:
        assert before.get(EVICTABLE) == then.get(EVICTABLE) or "long" in then


def test_annotations_are_left_out_where_they_have_no_room() -> None:
    for more in (0, 1):
        room = 256 * 1024 - len(f"long{USER_ANNOTATION}65532") + more
        after = hardened({**pod(), "metadata": {"annotations": {"long": "a" * room}}})
        assert (USER_ANNOTATION in after["metadata"]["annotations"]) is not bool(more)


@settings(max_examples=100)
@given(
    shape=st.fixed_dictionaries(
        {"containers": st.integers(1, 3)},
        optional={"initContainers": st.integers(1, 2), "ephemeralContainers": st.just(1)},
    ),
    os=st.sampled_from([None, {"name": "linux"}, WINDOWS]),
    policy=HARDENING,
)
def test_a_mutated_bare_pod_passes_the_check(
    shape: dict[str, int], os: JSON, policy: Policy
) -> None:
    kinds = {kind: [container(name=f"{kind}{n}") for n in range(m)] for kind, m in shape.items()}
    after = hardened({"metadata": {}, "spec": {**kinds, "os": os}}, policy)
    assert list(check(pod_of(after), context(policy))) == []


def assert_keeps(before: Any, after: Any) -> None:
    """Assert that `after` is `before` plus something: null is nothing, lists grow at their end."""
    if isinstance(before, dict):
        for key, value in before.items():
            if value is not None:
                assert_keeps(value, after[key])
    elif isinstance(before, list):
        assert len(after) >= len(before)
        for old, new in zip(before, after[: len(before)], strict=True):
            assert_keeps(old, new)
    else:
        assert before == after
        assert type(before) is type(after)


def assert_starts_as_before(pod: JSON, container: JSON, pod_after: JSON, after: JSON) -> None:
    """Assert that the kubelet starts a root container as before, and no other one as root.

    Source: verifyRunAsNonRoot in pkg/kubelet/kuberuntime/security_context_{others,windows}.go.
    """
    was = {field: effective(field, pod, container) for field in ("runAsNonRoot", "runAsUser")}
    now = {field: effective(field, pod_after, after) for field in ("runAsNonRoot", "runAsUser")}
    if (pod.get("os") or {}).get("name") == "windows":
        is_root = windows_user(pod, container).lower() == "containeradministrator"
        assert was["runAsUser"] == now["runAsUser"], "Windows has no such IDs"
    else:
        is_root = was["runAsUser"] == 0
        assert is_root or was["runAsNonRoot"] is False or now["runAsUser"] != 0
    added = ((container.get("securityContext") or {}).get("capabilities") or {}).get("add") or ()
    # The capability has an effect for root only: the container keeps the user of its image.
    keeps_user = not {"IPC_LOCK", "CAP_IPC_LOCK"}.isdisjoint(added) and was == {
        "runAsNonRoot": None,
        "runAsUser": None,
    }
    is_windows = (pod.get("os") or {}).get("name") == "windows"
    if is_root or was["runAsNonRoot"] is False or (keeps_user and not is_windows):
        assert now == was
    else:
        assert now["runAsNonRoot"] is True


def windows_user(pod: JSON, container: JSON) -> str:
    own, common = (
        ((source.get("securityContext") or {}).get("windowsOptions") or {}).get("runAsUserName")
        for source in (container, pod)
    )
    return own or common or ""


def effective(field: str, pod: JSON, container: JSON) -> Any:
    own = (container.get("securityContext") or {}).get(field)
    return (pod.get("securityContext") or {}).get(field) if own is None else own


def test_a_pod_that_loses_its_home_directory_is_admitted() -> None:
    """Another webhook may remove it, or choose another one."""
    own = policy(hardening={"home": "20Gi"})
    made = decide(gpu_pod(GPU), own).mutated
    for change in (
        lambda spec: spec["containers"][0].pop("env"),
        lambda spec: spec["containers"][0].pop("volumeMounts"),
        lambda spec: (spec["containers"][0].pop("volumeMounts"), spec.pop("volumes")),
        lambda spec: spec["containers"][0]["env"].append({"name": "HOME", "value": "/data"}),
    ):
        changed = copy.deepcopy(made)
        change(changed["spec"])
        assert validate(changed, own).allowed
        assert mutate(changed, own) == (), "a second call adds nothing"


def test_a_home_directory_needs_a_user_of_gpufence_and_one_call() -> None:
    """A sidecar of a later webhook gets the user only; without a user, ``home`` has no effect."""
    own = policy(hardening={"home": "20Gi"})
    made = decide(gpu_pod(GPU), own).mutated
    made["spec"]["containers"].append(container(name="sidecar"))
    again = patched(made, mutate(made, own))
    assert contexts(again)[1] == FILLED
    assert "gpufence-home" not in str(again["spec"]["containers"][1])
    assert validate(again, own).allowed
    debugged = decide(gpu_pod(GPU, ephemeralContainers=[container(name="debug")]), own).mutated
    assert "volumeMounts" not in debugged["spec"]["ephemeralContainers"][0]
    for none in ({"runAsUser": "none"}, {"level": "baseline"}, {"level": "off"}):
        with_home = decide(gpu_pod(GPU), policy(hardening={**none, "home": "20Gi"})).mutated
        assert with_home == decide(gpu_pod(GPU), policy(hardening=none)).mutated, none


def test_a_pod_that_writes_a_claim_gets_the_group_of_the_policy_or_that_of_its_home() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]
    writing = gpu_pod({**GPU, "volumeMounts": [{"name": "d", "mountPath": "/d"}]}, volumes=volumes)
    home, group = {"home": "20Gi"}, {"fsGroup": 2000}
    for chosen, expected in (({}, None), (home, 65532), (group, 2000), (home | group, 2000)):
        made = decide(writing, policy(hardening=chosen)).mutated
        assert made["spec"]["securityContext"].get("fsGroup") == expected, chosen

"""The editor: what it adds to a typed Pod, and what it records."""

from __future__ import annotations

from typing import Any

from policies.kubernetes.core_v1 import (
    Affinity,
    Capabilities,
    EnvVar,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SecurityContext,
)
from policies.kubernetes.editor import Addition, Editor
from policies.kubernetes.scheduling import REQUIRED
from typed import pod_of

TERM = NodeSelectorTerm([Requirement("gpu", "Exists")])


def recorded(editor: Editor) -> list[tuple[str, Any]]:
    return [(operation.path, operation.value) for _, operation in editor.changes]


def test_a_struct_adds_the_members_that_are_absent_and_changes_no_other() -> None:
    pod = pod_of({"spec": {"securityContext": {"runAsUser": 7}}})
    editor = Editor(pod)
    wanted = SecurityContext(run_as_user=65532, run_as_non_root=True)
    editor.apply([Addition(pod.spec, ("spec", "securityContext"), wanted)], "a-rule")
    assert pod.security_context == SecurityContext(run_as_user=7, run_as_non_root=True)
    assert recorded(editor) == [("/spec/securityContext/runAsNonRoot", True)]


def test_a_struct_is_added_from_its_first_absent_parent() -> None:
    pod = pod_of({"spec": {"affinity": {"nodeAffinity": {}}}})
    editor = Editor(pod)
    wanted = Affinity(NodeAffinity(NodeSelector([TERM])))
    editor.apply([Addition(pod.spec, ("spec", "affinity"), wanted)], "a-rule")
    [(path, value)] = recorded(editor)
    assert path == f"/spec/affinity/nodeAffinity/{REQUIRED}"
    assert value == {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
    }
    assert pod.spec.affinity == wanted


def test_a_mapping_adds_its_keys_and_escapes_them_in_the_path() -> None:
    pod = pod_of({"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}})
    resources = (pod.spec.containers or [])[0].resources
    assert resources is not None
    editor = Editor(pod)
    path = ("spec", "containers", 0, "resources", "limits")
    editor.apply([Addition(resources, path, {"cpu": "2", "nvidia.com/gpu": "1"})], "a-rule")
    assert resources.limits == {"cpu": "1", "nvidia.com/gpu": "1"}
    assert recorded(editor) == [("/spec/containers/0/resources/limits/nvidia.com~1gpu", "1")]


def test_entries_are_appended_and_a_dry_run_names_their_index() -> None:
    raw = {"spec": {"containers": [{"env": [{"name": "A"}]}]}}
    for dry_run in (False, True):
        pod = pod_of(raw)
        [container] = pod.spec.containers or []
        editor = Editor(pod, dry_run=dry_run)
        editor.apply(
            [Addition(container, ("spec", "containers", 0, "env"), [EnvVar("B", "b")])], "a-rule"
        )
        names = [variable.name for variable in container.env or ()]
        value = {"name": "B", "value": "b"}
        if dry_run:
            assert editor.made_by("a-rule") == [("spec.containers[0].env[1]", value)]
            assert names == ["A"]
        else:
            assert recorded(editor) == [("/spec/containers/0/env/-", value)]
            assert names == ["A", "B"]


def test_what_is_recorded_does_not_change_with_what_is_added_to_it_later() -> None:
    pod = pod_of({"spec": {}})
    editor = Editor(pod)
    first = SecurityContext(capabilities=Capabilities(drop=["ALL"]))
    editor.apply([Addition(pod.spec, ("spec", "securityContext"), first)], "a-rule")
    second = SecurityContext(capabilities=Capabilities(drop=["KILL"]))
    editor.apply([Addition(pod.spec, ("spec", "securityContext"), second)], "a-rule")
    assert recorded(editor) == [
        ("/spec/securityContext", {"capabilities": {"drop": ["ALL"]}}),
        ("/spec/securityContext/capabilities/drop/-", "KILL"),
    ]

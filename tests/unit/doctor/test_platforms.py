"""Platforms whose Pods are bound to nodes: by their namespaces, StorageClasses and workloads."""

from __future__ import annotations

from webhook.tools.platforms import PLATFORMS, found


def workload(namespace: str, name: str, image: str, kind: str = "Deployment") -> dict[str, object]:
    template = {"spec": {"containers": [{"name": "proxy", "image": "proxy"}, {"image": image}]}}
    metadata = {"namespace": namespace, "name": name}
    return {"kind": kind, "metadata": metadata, "spec": {"template": template}}


def test_a_platform_is_found_once_in_each_namespace() -> None:
    for platform in PLATFORMS:
        own = platform.namespace if not platform.advice else ""
        image = f"registry.example/a/{platform.images[0]}:v1"
        [by_name] = found([platform.namespace], {}, [])
        assert (by_name.platform, by_name.namespace) == (platform, own)
        [elsewhere] = found([], {}, [workload("storage", "a", image)])
        is_known = not (platform.advice or platform.has_own_namespace)
        assert elsewhere.namespace == ("storage" if is_known else ""), platform
        assert elsewhere.evidence == "Deployment storage/a"
        here = workload(platform.namespace, "agent", image, "DaemonSet")
        [both] = found([platform.namespace], {}, [here])
        assert (both.namespace, both.evidence) == (own, f"DaemonSet {platform.namespace}/agent")


def test_a_storage_class_tells_if_nothing_else_does() -> None:
    classes = {"rancher.io/local-path": "fast"}
    [by_class] = found([], classes, [])
    assert by_class.problem == (
        "StorageClass fast is of Local Path Provisioner, whose volume helpers are bound to one "
        "node: gpufence denies them on GPU nodes"
    )
    assert by_class.remediation == (
        "Add the namespace of these volume helpers to exemptions.namespaces"
    )
    image = "rancher/local-path-provisioner:v0.0.31"
    [known] = found([], classes, [workload("provisioner", "a", image)])
    assert known.remediation == "Add provisioner to exemptions.namespaces"
    # gpufence never reviews kube-system, where k3s runs it.
    assert not [*found([], classes, [workload("kube-system", "a", image)])]


def test_other_workloads_are_no_platform() -> None:
    assert not [*found(["default"], {"ebs.csi.aws.com": "gp3"}, [workload("a", "b", "nginx")])]

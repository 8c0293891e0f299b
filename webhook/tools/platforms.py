"""Platforms that create Pods for one node: gpufence denies them on GPU nodes, unless exempt.

A volume helper runs on the node of the Pod that waits for the volume. It requests no GPU, and
mounts a directory of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from policies.kubernetes.objects import JSONObject, mappings
from policies.kubernetes.paths import descend
from webhook.cluster.objects import Reader
from webhook.kube.collection import Collection as Kind

_CLASSES = Kind("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", JSONObject)
_WORKLOADS = {
    kind: Kind(f"{kind.lower()}s", f"/apis/apps/v1/{kind.lower()}s", JSONObject)
    for kind in ("Deployment", "StatefulSet", "DaemonSet")
}
_ADD = "Add {} to exemptions.namespaces"


class Platform(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A platform, and how to recognize it; the head of ``platforms.toml`` explains the fields."""

    name: str
    namespace: str
    pods: str
    images: tuple[str, ...]
    provisioners: tuple[str, ...] = ()
    advice: str = ""
    has_own_namespace: bool = False


PLATFORMS = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[Platform, ...]]
)["platforms"]


class Found(NamedTuple):
    """A platform of a cluster, how it was found, and the namespace to exempt, if one helps."""

    platform: Platform
    evidence: str
    namespace: str = ""

    @property
    def problem(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return (
            f"{self.evidence} is of {self.platform.name}, whose {self.platform.pods}{where} are "
            "bound to one node: gpufence denies them on GPU nodes"
        )

    @property
    def remediation(self) -> str:
        if self.platform.advice:
            return self.platform.advice
        if self.namespace:
            return _ADD.format(self.namespace)
        return _ADD.format(f"the namespace of these {self.platform.pods}")


def found(
    namespaces: Collection[str], classes: Mapping[str, str], workloads: Iterable[JSONObject]
) -> Iterator[Found]:
    """Yield the platforms of a cluster, once for each namespace of their Pods.

    ``classes`` are the StorageClasses by their provisioner. ``workloads`` are the controllers and
    agents, whose images tell, whatever their namespace is.
    """
    running = [(place, image) for obj in workloads for place, image in _images(obj)]
    for platform in PLATFORMS:
        places = {
            namespace: f"{kind} {namespace}/{name}"
            for (kind, namespace, name), image in running
            if any(part in image for part in platform.images)
        }
        if platform.advice:
            if places or platform.namespace in namespaces:
                evidence = next(iter(places.values()), f"Namespace {platform.namespace}")
                yield Found(platform, evidence)
            continue
        if platform.namespace in namespaces:
            evidence = places.pop(platform.namespace, f"Namespace {platform.namespace}")
            yield Found(platform, evidence, platform.namespace)
            if platform.has_own_namespace:
                continue
        elif not places or platform.has_own_namespace:
            evidence = next(iter(places.values()), "")
            names = [classes[name] for name in platform.provisioners if name in classes]
            if evidence or names:
                yield Found(platform, evidence or f"StorageClass {names[0]}")
            continue
        yield from (
            Found(platform, evidence, namespace)
            for namespace, evidence in places.items()
            if namespace != "kube-system"
        )


async def platforms_of(reader: Reader, namespaces: Collection[str]) -> list[Found]:
    """Return the platforms of a cluster, as far as the account may read their objects.

    Raises:
        ClusterError: the cluster cannot be read.
    """
    classes, workloads = {}, []
    for item in await reader.read(_CLASSES, lambda item: item) or ():
        classes[str(item.get("provisioner"))] = str(descend(item, ("metadata", "name")))
    for kind, collection in _WORKLOADS.items():
        items = await reader.read(collection, lambda item: item) or ()
        workloads += [{**item, "kind": kind} for item in items]
    return [*found(namespaces, classes, workloads)]


def _images(obj: JSONObject) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the kind, namespace and name of a workload, and the image of each container."""
    names = (descend(obj, ("metadata", key)) for key in ("namespace", "name"))
    place = (str(obj.get("kind")), *(str(name or "default") for name in names))
    containers = descend(obj, ("spec", "template", "spec", "containers"))
    for _, container in mappings(containers):
        yield place, str(container.get("image"))  # type: ignore[misc]

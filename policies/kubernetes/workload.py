"""An object of the API: its identity, and the typed Pods of its pod templates."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from policies.kubernetes import core_v1
from policies.kubernetes.core_v1 import ObjectMeta
from policies.kubernetes.decoding import (
    check_size,
    checked_spec,
    convert,
    pod_of,
)
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import Unjudged
from policies.kubernetes.templates import find, is_core_workload, role


class _Object(msgspec.Struct):
    """The part of every object that rules read."""

    metadata: ObjectMeta | None = None


class Workload:
    """A Pod, a workload, or another object: some have several Pods, and most have none.

    ``raw`` is the object as parsed JSON, ``None`` for a Pod that was decoded into its type. Its
    Pods are mutable: a mutation changes them, so a workload is read again for each decision.
    """

    __slots__ = ("_pod", "_pods", "api_version", "kind", "metadata", "raw", "unjudged")

    def __init__(self, obj: JSONObject | core_v1.PodObject) -> None:
        """Read the object's metadata.

        Raises:
            MalformedObjectError: the metadata is malformed.
        """
        self._pod: core_v1.PodObject | None = None
        self.unjudged: tuple[Unjudged, ...] = ()
        """The parts whose Pods cannot be judged; known after ``pods``."""
        self._pods: tuple[Pod, ...] | None = None
        self.raw: JSONObject | None = None
        if isinstance(obj, core_v1.PodObject):
            self._pod = obj
            metadata = obj.metadata
            self.api_version: Any = obj.api_version
            self.kind = str(obj.kind)
        else:
            metadata = convert(obj, _Object).metadata
            self.raw = obj
            self.api_version = obj.get("apiVersion")
            self.kind = str(obj.get("kind"))
        self.metadata = metadata or ObjectMeta()

    @property
    def name(self) -> str:
        """The object's name, or the prefix that its name is generated from."""
        return self.metadata.name or self.metadata.generate_name or ""

    @property
    def is_pod(self) -> bool:
        return self.kind == "Pod" and self.api_version == "v1"

    @property
    def is_being_deleted(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def is_core_workload(self) -> bool:
        """Whether the API server validates the object's pod template itself, before webhooks."""
        return self.raw is not None and is_core_workload(self.raw)

    def pods(self) -> tuple[Pod, ...]:
        """Return the Pods of the object's templates, in the order of the object.

        Raises:
            MalformedObjectError: a field that rules read has the wrong type, or is no quantity.
            OversizedObjectError: they are more than can be judged at a time.
        """
        if self._pods is None:
            if self._pod is not None:
                pods: tuple[Pod, ...] = (Pod(checked_spec(self._pod), self._pod.metadata),)
            else:
                templates, self.unjudged = find(self.raw or {})
                pods = tuple(map(pod_of, templates))
            check_size(pods)
            self._pods = pods
        return self._pods

    def with_metadata(self, other: Workload) -> Workload:
        """Return this object with the metadata of another one, except for its annotations."""
        if self._pod is not None:
            metadata = replace(other.metadata, annotations=self.metadata.annotations)
            return Workload(replace(self._pod, metadata=metadata))
        metadata_of_raw = {**((other.raw or {}).get("metadata") or {})}
        metadata_of_raw["annotations"] = self.metadata.annotations
        return Workload({**(self.raw or {}), "metadata": metadata_of_raw})

    def pod_spec(self) -> core_v1.PodSpec | None:
        """Return the spec of a Pod that may lack one, as it is stored.

        Raises:
            MalformedObjectError: a field that rules read has the wrong type.
        """
        pod = self._pod or convert(self.raw, core_v1.PodTemplate)
        return pod.spec

    def role(self, pod: Pod) -> str:
        """Return what the object calls the Pods of a template: the Worker replicas, the head."""
        if self.raw is None or pod.kind == "Pod":
            return ""
        return role(self.raw, pod.template.spec_path)

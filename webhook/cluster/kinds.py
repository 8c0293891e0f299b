"""The kinds that an audit lists: those of the core groups, and custom ones by discovery."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from webhook.kube.client import KubeApi, decoded
from webhook.kube.errors import NOT_FOUND, ApiError
from webhook.kube.pages import get_again

_UNAVAILABLE = 503

T = TypeVar("T")

GroupKind = tuple[str, str]
"""API group (empty for the core group) and kind."""


class Kind(NamedTuple):
    """A kind of objects, and its name in URLs."""

    group: str
    version: str
    kind: str
    resource: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The path of the collection in all namespaces."""
        root = "/apis" if self.group else "/api"
        return f"{root}/{self.api_version}/{self.resource}"

    @property
    def key(self) -> GroupKind:
        return self.group, self.kind

    @property
    def title(self) -> str:
        """The name for kubectl: ``jobs.batch``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


POD = Kind("", "v1", "Pod", "pods")
WORKLOADS: tuple[Kind, ...] = (
    Kind("apps", "v1", "Deployment", "deployments"),
    Kind("apps", "v1", "StatefulSet", "statefulsets"),
    Kind("apps", "v1", "DaemonSet", "daemonsets"),
    Kind("apps", "v1", "ReplicaSet", "replicasets"),
    Kind("batch", "v1", "CronJob", "cronjobs"),
    Kind("batch", "v1", "Job", "jobs"),
    Kind("", "v1", "ReplicationController", "replicationcontrollers"),
    Kind("", "v1", "PodTemplate", "podtemplates"),
)
"""The built-in kinds with a pod template."""


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    preferred: _Version = msgspec.field(name="preferredVersion")
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool
    verbs: list[str]


class _Resources(msgspec.Struct):
    resources: list[_Resource]


class Discovery:
    """The kinds that an API server serves, requested by group when needed."""

    def __init__(self, connection: KubeApi) -> None:
        self._connection = connection
        self._versions: dict[str, tuple[str, ...]] | None = None
        self._kinds: dict[str, tuple[Kind, ...]] = {}
        self.unavailable: dict[str, str] = {}
        """Groups that are incomplete because their API server is unavailable, and its error."""

    async def kinds(self, group: str) -> tuple[Kind, ...]:
        """Return the kinds of the group that can be listed.

        Each is in the group's preferred version, or in the first version that has it: in
        ``kubeflow.org``, PyTorchJobs are ``v1`` and MPIJobs are ``v2beta1``.

        Raises:
            ClusterError: the API server cannot be read.
        """
        if group not in self._kinds:
            kinds: dict[str, Kind] = {}
            for version in await self._versions_of(group):
                for kind in await self._in_version(group, version):
                    kinds.setdefault(kind.resource, kind)
            self._kinds[group] = tuple(kinds.values())
        return self._kinds[group]

    async def _versions_of(self, group: str) -> tuple[str, ...]:
        """Return the versions of a group, the preferred one first."""
        if self._versions is None:
            groups = await self._get("/apis", _Groups)
            self._versions = {
                group.name: tuple(
                    dict.fromkeys(of.version for of in (group.preferred, *group.versions))
                )
                for group in groups.groups
            }
        return self._versions.get(group, ())

    async def _in_version(self, group: str, version: str) -> tuple[Kind, ...]:
        try:
            resources = await self._get(f"/apis/{group}/{version}", _Resources)
        except ApiError as error:
            # The definition of a group can be deleted, or its aggregated API server be unavailable.
            if error.status == _UNAVAILABLE:
                self.unavailable[group] = str(error)
            elif error.status != NOT_FOUND:
                raise
            return ()
        return tuple(
            Kind(group, version, resource.kind, resource.name, resource.namespaced)
            for resource in resources.resources
            if "list" in resource.verbs and "/" not in resource.name
        )

    async def _get(self, path: str, shape: type[T]) -> T:
        body = await get_again(self._connection, path)
        return decoded(body, path, msgspec.json.Decoder(shape))

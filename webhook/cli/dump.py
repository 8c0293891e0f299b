"""A dump of a cluster in place of its API server, as ``kubectl get -o json`` prints it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import msgspec

from policies.kubernetes.objects import JSONObject
from webhook.cli.manifests import read_manifests
from webhook.cluster.nodes import NODES
from webhook.cluster.state import NAMESPACES
from webhook.documents.document import InputError, raise_errors
from webhook.documents.files import display_name
from webhook.kube.client import MOST_BYTES, KubeApi, Query
from webhook.kube.credentials import Access
from webhook.kube.errors import NOT_FOUND, ApiError

_ENDED = ("Succeeded", "Failed")
"""The phases of Pods that an audit does not list."""
_CURE = "Create it with kubectl get --all-namespaces -o json nodes,namespaces,pods,deployments,jobs"


class Dump(KubeApi):
    """Answers what an audit reads: collections, and which kinds there are.

    A collection has the name that Kubernetes gives its own: the plural of the kind. A Pod that has
    ended is left out.

    Raises:
        InputError: the file cannot be read, an object in it is invalid, or it has no nodes or no
            namespaces.
    """

    def __init__(self, path: str) -> None:
        super().__init__(_no_access)
        self._name = display_name(path)
        self._items: defaultdict[str, list[JSONObject]] = defaultdict(list)
        self._resources: defaultdict[str, dict[str, JSONObject]] = defaultdict(dict)
        errors = []
        for manifest in read_manifests([path]):
            errors.append((manifest.document, manifest.error))
            if manifest.error is None and manifest.value is not None:
                self._take(manifest.value)
        raise_errors(errors)
        for collection in (NODES, NAMESPACES):
            if collection.path not in self._items:
                raise InputError([f"{self._name} contains no {collection.name}. {_CURE}."])

    def _take(self, obj: JSONObject) -> None:
        version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        metadata, status = obj.get("metadata") or {}, obj.get("status") or {}
        if (version, kind) == ("v1", "Pod") and status.get("phase") in _ENDED:
            return
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        name = _plural(kind.lower())
        self._items[f"{root}/{name}"].append(obj)
        resource = {"name": name, "kind": kind, "verbs": ["list"]}
        self._resources[root][name] = {**resource, "namespaced": "namespace" in metadata}

    async def host(self) -> str:
        """Return the name of the file."""
        return self._name

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        seconds: float = 0,
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        """Return a collection, the groups, or the kinds of a group.

        Raises:
            ApiError: the dump has no such objects.
        """
        body: dict[str, Any]
        if path == "/apis":
            body = {"groups": [*self._groups()]}
        elif path in self._resources:
            body = {"resources": [*self._resources[path].values()]}
        elif path in self._items:
            body = {"metadata": {}, "items": self._items[path]}
        else:
            kinds = path.rpartition("/")[2]
            raise ApiError(NOT_FOUND, f"{self._name} has no {kinds}")
        return msgspec.json.encode(body)

    def _groups(self) -> list[JSONObject]:
        versions: defaultdict[str, list[JSONObject]] = defaultdict(list)
        for root in self._resources:
            group, _, version = root.removeprefix("/apis/").partition("/")
            if root.startswith("/apis/"):
                versions[group].append({"version": version})
        return [
            {"name": group, "preferredVersion": found[0], "versions": found}
            for group, found in versions.items()
        ]


def _plural(kind: str) -> str:
    if re.search("(s|x|ch|sh)$", kind):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if re.search("[^aeiou]y$", kind) else f"{kind}s"


async def _no_access() -> Access:
    raise InputError(["a dump has no API server"])

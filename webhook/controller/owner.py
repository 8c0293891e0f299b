"""The object that owns what the controller writes, so that it goes with the release."""

from __future__ import annotations

from dataclasses import dataclass

from policies.kubernetes.objects import JSONObject
from webhook.kube.errors import ClusterError

_RBAC = "rbac.authorization.k8s.io/v1"
_KINDS = {
    "clusterrole": (_RBAC, "ClusterRole", f"/apis/{_RBAC}/clusterroles"),
    "clusterrolebinding": (_RBAC, "ClusterRoleBinding", f"/apis/{_RBAC}/clusterrolebindings"),
    "namespace": ("v1", "Namespace", "/api/v1/namespaces"),
}


@dataclass(frozen=True, slots=True)
class Owner:
    """A cluster-scoped object of the release, with which the written objects go."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Read ``clusterrole/NAME``; raises ValueError."""
        kind, _, name = text.partition("/")
        if kind.lower() not in _KINDS or not name:
            kinds = ", ".join(_KINDS)
            raise ValueError(f"{text!r} is not an owner; write KIND/NAME with one of {kinds}")
        return cls(kind.lower(), name)

    @property
    def path(self) -> str:
        return f"{_KINDS[self.kind][2]}/{self.name}"

    def reference(self, owner: JSONObject | None) -> JSONObject:
        """Return the ownerReference to the object.

        Raises:
            ClusterError: there is no such object: whatever it owned would be deleted at once.
        """
        api_version, kind, _ = _KINDS[self.kind]
        if owner is None:
            raise ClusterError(
                f"{kind} {self.name} does not exist, so it cannot own what gpufence writes; "
                "set --owner to an object of the release"
            )
        uid = owner["metadata"]["uid"]
        return {"apiVersion": api_version, "kind": kind, "name": self.name, "uid": uid}

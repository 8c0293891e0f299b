"""The shapes of objects that gpufence reads one by one, as far as it relies on them.

An API server, or a proxy before it, that sends something else is named in a sentence.
"""

from __future__ import annotations

import re
from types import GenericAlias
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from policies.kubernetes.objects import JSONObject
from webhook.kube.errors import INVALID, UnexpectedAnswerError


def _part(required: dict[str, Any] | None = None, **optional: Any) -> Any:
    """Return the type of an object with these fields, and any others. API servers omit null."""
    fields = [(name, kind | UnsetType, UNSET) for name, kind in optional.items()]
    return msgspec.defstruct("Part", [*(required or {}).items(), *fields])


def _list(item: Any) -> Any:
    return GenericAlias(list, item)


def _list_or_null(item: Any) -> Any:
    """Return the type of a list without ``omitempty``: an empty one is null."""
    return _list(item) | None


_METADATA = {
    "metadata": _part(
        {"name": str},
        labels=dict[str, str],
        annotations=dict[str, str],
        ownerReferences=_list(dict),
    )
}
_EXPRESSION = _part({"key": str, "operator": str}, values=list[str])
_SELECTED = {"namespaceSelector": _part(matchExpressions=_list(_EXPRESSION))}
_CONTAINER = _part({"name": str}, image=str, command=list[str], args=list[str])
_POD_SPEC = _part({"containers": _list(_CONTAINER)}, serviceAccountName=str)
_CLIENT_CONFIG = _part(
    service=_part({"namespace": str, "name": str}, port=int), url=str, caBundle=str
)
_WEBHOOK = _part({"name": str}, clientConfig=_CLIENT_CONFIG, timeoutSeconds=int, **_SELECTED)
_CONFIGURATION = _part(_METADATA, webhooks=_list(_WEBHOOK))
_POLICY = _part(
    _METADATA,
    spec=_part(matchConstraints=_part(**_SELECTED), matchResources=_part(**_SELECTED)),
    status=_part(typeChecking=_part(expressionWarnings=_list(dict))),
)
_OF_RESOURCE: dict[str, Any] = {
    "deployments": _part(
        {"spec": _part({"template": _part({"spec": _POD_SPEC})}, replicas=int)},
        status=_part(readyReplicas=int),
    ),
    "endpointslices": _part(endpoints=_list_or_null(_part(conditions=_part(ready=bool)))),
    "fencepolicies": _part(_METADATA),
    "mutatingwebhookconfigurations": _CONFIGURATION,
    "secrets": _part(data=dict[str, str]),
    "validatingadmissionpolicies": _POLICY,
    "validatingadmissionpolicybindings": _POLICY,
    "validatingwebhookconfigurations": _CONFIGURATION,
}
_OF_PATH: dict[str, Any] = {
    "/version": _part(gitVersion=str),
    "/apis/resource.k8s.io": _part(versions=_list(_part({"version": str}))),
}
_RESOURCE = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([^/]+)(/[^/]+)?")


def check_shape(obj: JSONObject, path: str) -> None:
    """Check an object, or the items of a list, as far as gpufence relies on their shape.

    Raises:
        UnexpectedAnswerError: a field is missing or has another type.
    """
    found = _RESOURCE.fullmatch(path)
    shape = _OF_RESOURCE.get(found[1]) if found else _OF_PATH.get(path)
    if found and found[2] is None:
        shape = _part(items=_list_or_null(shape or dict))
    if shape is None:
        return
    try:
        msgspec.convert(obj, shape)
    except INVALID as error:
        problem = f"the API server sent a malformed object: {error}"
        raise UnexpectedAnswerError(f"{path}: {problem}") from error

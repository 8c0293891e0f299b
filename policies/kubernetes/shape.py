"""The types of every field that a rule reads, checked before any rule runs.

The API server has typed its objects already; files and forged reviews have not. A value of the
wrong type is answered here once, with its path, so that no rule has to expect it. Fields that no
rule reads may hold anything. The checking itself is msgspec's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import CONTAINER_KINDS, RESOURCE_SIDES
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity
from policies.kubernetes.scheduling import REQUIRED_TERMS, required_terms
from policies.kubernetes.template import Template

MOST_CONTAINERS = 5000
"""Containers of an object's Pods, all together: each takes some kilobytes to judge."""

MOST_CLAIMS = 32
"""Claims, and templates of claims, that the Pods of an object name: each is looked up."""

MOST_REQUIREMENTS = 1000
"""Requirements of a required node affinity, in all of its terms together."""


class MalformedObjectError(ValueError):
    """The object is not what its kind promises: what, where, and what to write instead."""

    fault = "malformed"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class OversizedObjectError(MalformedObjectError):
    """The object may be what its kind promises, and is more than can be judged at a time."""

    fault = "too large"


class _Shape(msgspec.Struct, rename="camel", gc=False):
    """A part of an object: only the fields that rules read, all of them nullable as in the API."""


class _Capabilities(_Shape):
    add: list[str] | None = None
    drop: list[str] | None = None


class _Typed(_Shape):
    type: str | None = None


class _SELinuxOptions(_Shape):
    type: str | None = None
    user: str | None = None
    role: str | None = None


class _WindowsOptions(_Shape):
    host_process: bool | None = None


class _Sysctl(_Shape):
    name: str | None = None


class _SecurityContext(_Shape):
    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    capabilities: _Capabilities | None = None
    proc_mount: str | None = None
    run_as_non_root: bool | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    fs_group: int | None = None
    seccomp_profile: _Typed | None = None
    app_armor_profile: _Typed | None = None
    se_linux_options: _SELinuxOptions | None = None
    windows_options: _WindowsOptions | None = None
    sysctls: list[_Sysctl] | None = None


class _Host(_Shape):
    host: str | None = None


class _Handler(_Shape):
    http_get: _Host | None = None
    tcp_socket: _Host | None = None


class _Lifecycle(_Shape):
    post_start: _Handler | None = None
    pre_stop: _Handler | None = None


class _Port(_Shape):
    host_port: int | None = None


class _EnvVar(_Shape):
    name: str | None = None
    value: str | None = None
    value_from: dict[str, Any] | None = None


class _VolumeMount(_Shape):
    name: str | None = None


class _Resources(_Shape):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class _Container(_Shape):
    name: str | None = None
    image: str | None = None
    env: list[_EnvVar] | None = None
    env_from: list[dict[str, Any]] | None = None
    ports: list[_Port] | None = None
    resources: _Resources | None = None
    volume_mounts: list[_VolumeMount] | None = None
    security_context: _SecurityContext | None = None
    liveness_probe: _Handler | None = None
    readiness_probe: _Handler | None = None
    startup_probe: _Handler | None = None
    lifecycle: _Lifecycle | None = None


class _HostPath(_Shape):
    path: str | None = None


class _Volume(_Shape):
    name: str | None = None
    host_path: _HostPath | None = None


class _Toleration(_Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Requirement(_Shape):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Term(_Shape):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _NodeSelector(_Shape):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(_Shape):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class _Affinity(_Shape):
    node_affinity: _NodeAffinity | None = None


class _ResourceClaim(_Shape):
    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _OS(_Shape):
    name: str | None = None


class _PodSpec(_Shape):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    tolerations: list[_Toleration] | None = None
    node_selector: dict[str, str | None] | None = None
    node_name: str | None = None
    affinity: _Affinity | None = None
    resource_claims: list[_ResourceClaim] | None = None
    resources: _Resources | None = None
    runtime_class_name: str | None = None
    security_context: _SecurityContext | None = None
    os: _OS | None = None
    host_network: bool | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    host_users: bool | None = None


class _Owner(_Shape):
    kind: str | None = None
    api_version: str | None = None
    controller: bool | None = None


class _Metadata(_Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    annotations: dict[str, str | None] | None = None
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None


class _Object(_Shape):
    metadata: _Metadata | None = None


class _Pod(_Shape):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at `(?P<key>key` in `)?\$(?P<path>.*?)`)?", re.DOTALL)
_SOME_KEY = "[...]"
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number with a fraction",
    "int": "a whole number",
    "null": "nothing",
    "object": "a mapping",
    "str": "a string",
}


def check_object(obj: Any) -> None:
    """Check the object's own metadata.

    Raises:
        MalformedObjectError: naming the first field of the wrong type.
    """
    _convert(obj, _Object)


def check_template(template: Template) -> None:
    """Check a Pod or pod template: types of the fields that rules read, and its quantities.

    Raises:
        MalformedObjectError: naming the first field of the wrong type, or quantity that is none.
        OversizedObjectError: it requires too much of a node.
    """
    try:
        _check_pod(template.raw)
    except MalformedObjectError as error:
        raise type(error)(template.at(error.path), error.problem) from error


def check_size(found: Iterable[Template]) -> None:
    """Check that the pod templates of an object are no more than can be judged at a time.

    Raises:
        OversizedObjectError: they have too many containers, or name too many claims.
    """
    count = sum(
        [
            len(template.raw["spec"].get(kind) or ())
            for template in found
            for kind in CONTAINER_KINDS
        ]
    )
    if count > MOST_CONTAINERS:
        raise OversizedObjectError(
            "", f"it has {count:,} containers; gpufence judges up to {MOST_CONTAINERS:,} at a time"
        )
    claims = {
        (entry.get("resourceClaimName"), entry.get("resourceClaimTemplateName"))
        for template in found
        for entry in template.raw["spec"].get("resourceClaims") or ()
    }
    if len(claims) > MOST_CLAIMS:
        raise OversizedObjectError(
            "", f"it names {len(claims):,} resource claims; gpufence looks up to {MOST_CLAIMS} up"
        )


def _check_pod(pod: JSONObject) -> None:
    _convert(pod, _Pod)
    spec = pod.get("spec")
    if spec is None:
        raise MalformedObjectError("spec", "is missing")
    if spec.get("affinity"):
        _check_requirements(spec)
    _check_quantities(spec.get("resources") or {}, "spec")
    for kind in CONTAINER_KINDS:
        for index, container in enumerate(spec.get(kind) or ()):
            if resources := container.get("resources"):
                _check_quantities(resources, f"spec.{kind}[{index}]")


def _check_requirements(spec: JSONObject) -> None:
    count = sum(
        len(term.get("matchExpressions") or ()) + len(term.get("matchFields") or ())
        for term in required_terms(spec) or ()
    )
    if count > MOST_REQUIREMENTS:
        raise OversizedObjectError(
            REQUIRED_TERMS,
            f"makes {count:,} requirements of a node; gpufence judges up to {MOST_REQUIREMENTS:,}, "
            "because it has to hold each against all nodes of a cluster",
        )


def _check_quantities(resources: JSONObject, where: str) -> None:
    for side in RESOURCE_SIDES:
        quantities = resources.get(side)
        for name, quantity in quantities.items() if quantities else ():
            try:
                parse_quantity(quantity)
            except InvalidQuantityError as error:
                path = f"{where}.resources.{side}[{name}]"
                raise MalformedObjectError(path, str(error)) from error


def _convert(value: Any, shape: type[_Shape]) -> None:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        match = _MESSAGE.fullmatch(str(error))
        path, problem = (match["path"] or "", match["problem"]) if match else ("", str(error))
        if match and match["key"]:
            path += " (a key)"
        elif path.endswith(_SOME_KEY):
            path = path.removesuffix(_SOME_KEY) + f"[{_wrong_key(value, path)}]"
        raise MalformedObjectError(path.removeprefix("."), _plain(problem)) from error


def _wrong_key(value: Any, path: str) -> str:
    """Return the key of the first value that is no string, in the mapping that ``path`` leads to.

    msgspec says only that there is one. Fields are on the way, and no list is.
    """
    for step in path.removesuffix(_SOME_KEY).split(".")[1:]:
        value = value[step]
    return next(str(key) for key, item in value.items() if not isinstance(item, str | None))


def _plain(problem: str) -> str:
    """Turn msgspec's words into the user's."""
    if wrong := re.fullmatch(r"Expected `(?P<want>.*?)(?: \| null)?`, got `(?P<got>.*)`", problem):
        want, got = (_WORDS.get(wrong[key], wrong[key]) for key in ("want", "got"))
        quote = "; put the value in quotes" if (wrong["want"], wrong["got"]) in _UNQUOTED else ""
        return f"must be {want}, but is {got}{quote}"
    return problem


_UNQUOTED = {("str", "bool"), ("str", "int"), ("str", "float")}

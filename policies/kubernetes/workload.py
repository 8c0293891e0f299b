"""An object of the API: its identity, and the typed Pods of its pod templates.

The API server has typed its objects already; files and forged reviews have not. What is malformed
or too large is rejected here, with its path. Fields that no rule reads may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from operator import gt
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from policies.kubernetes.core_v1 import (
    ContainerSpec,
    ObjectMeta,
    PodObject,
    PodSpec,
    PodTemplate,
    ResourceRequirements,
)
from policies.kubernetes.objects import JSONObject, MalformedObjectError, OversizedObjectError
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity
from policies.kubernetes.scheduling import required_terms
from policies.kubernetes.template import Template, Unjudged
from policies.kubernetes.templates import (
    Found,
    find,
    foreign_field,
    has_known_fields,
    is_core_workload,
)

MOST_CLAIMS = 32
"""Claims, and templates of claims, that the Pods of an object name: each is looked up."""

LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "containers in one Pod": 200,
        "containers": 500,
        "device quantities": 1000,
        "tolerations": 500,
        "volumes": 1000,
        "node affinity requirements": 200,
        "node affinity values": 5000,
        "resource claims": MOST_CLAIMS,
        "uses of resource claims": 1000,
    }
)
"""How many of each the Pods of an object may have, all together.

They bound the time of a review, in which a replica answers nothing else. Before Kubernetes 1.37,
each container of a Pod costs an API server a conversion for each webhook and admission policy: what
is denied as too large in the mutating phase reaches no other. The objects of 371
manifests of public projects have at most 6 containers, 3 device quantities, 4 tolerations, 18
volumes, and 3 requirements with 3 values.
"""

T = TypeVar("T")


class _Object(msgspec.Struct):
    """The part of every object that rules read."""

    metadata: ObjectMeta | None = None


class Workload:
    """A Pod, a workload, or another object: some have several Pods, and most have none.

    ``raw`` is the object as parsed JSON, ``None`` for a Pod that was decoded into its type. Its
    Pods are mutable: a mutation changes them, so a workload is read again for each decision.
    """

    __slots__ = ("_pod", "_pods", "api_version", "kind", "metadata", "raw", "unjudged")

    def __init__(self, obj: JSONObject | PodObject) -> None:
        """Read the object's metadata.

        Raises:
            MalformedObjectError: the metadata is malformed.
        """
        self._pod: PodObject | None = None
        self.unjudged: tuple[Unjudged, ...] = ()
        """The parts of interest whose Pods cannot be judged; known after ``pods``."""
        self._pods: tuple[Pod, ...] | None = None
        self.raw: JSONObject | None = None
        if isinstance(obj, PodObject):
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
                pods = tuple(self._pods_of_templates(self.raw or {}))
                self.unjudged = tuple(
                    part
                    for part in self.unjudged
                    if part.value is None or self.concerns(part.value)
                )
            check_size(pods)
            self._pods = pods
        return self._pods

    def found(self, obj: JSONObject) -> Found:
        """Return the pod templates of the object, and the parts that cannot be judged."""
        return find(obj)

    def concerns(self, _value: Any) -> bool:
        """Return whether a part that cannot be judged is of interest for its value."""
        return False

    def _pods_of_templates(self, obj: JSONObject) -> Iterator[Pod]:
        """Yield the Pod of each template.

        Fields of an unknown custom resource may only have the names of a Pod's: its own definition
        says what they hold.
        """
        templates, self.unjudged = self.found(obj)
        for template in templates:
            problem = None if has_known_fields(obj) else foreign_field(template)
            try:
                pod = None if problem else pod_of(replace(template, root=obj))
            except OversizedObjectError:
                raise
            except MalformedObjectError as error:
                if has_known_fields(obj):
                    raise
                problem = str(error)
            if problem:
                reason = f"its fields are not those of a Pod ({problem})"
                spec = template.raw["spec"]
                self.unjudged += (Unjudged(template.spec_path, reason, spec),)
            elif pod is not None:
                yield pod

    def with_metadata(self, other: Workload) -> Workload:
        """Return this object with the metadata of another one, and with its own labels."""
        labels, annotations = self.metadata.labels, self.metadata.annotations
        if self._pod is not None:
            metadata = replace(other.metadata, labels=labels, annotations=annotations)
            return Workload(replace(self._pod, metadata=metadata))
        metadata_of_raw = {**((other.raw or {}).get("metadata") or {})}
        metadata_of_raw |= {"labels": labels, "annotations": annotations}
        return Workload({**(self.raw or {}), "metadata": metadata_of_raw})

    def with_ephemeral_containers(self, other: Workload) -> Workload:
        """Return this Pod with the ephemeral containers of another one.

        Raises:
            MalformedObjectError: one of them is malformed.
        """
        ours, theirs = self._as_pod(), other._as_pod()
        containers = checked_spec(theirs).ephemeral_containers
        spec = replace(checked_spec(ours), ephemeral_containers=containers)
        return Workload(replace(ours, spec=spec))

    def _as_pod(self) -> PodObject:
        return self._pod if self._pod is not None else convert(self.raw, PodObject)


def convert(value: Any, type_: type[T]) -> T:
    """Return parsed JSON as a typed value.

    Raises:
        MalformedObjectError: naming the first field of the wrong type.
    """
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _malformed(value, str(error)) from error


def pod_of(template: Template) -> Pod:
    """Return the typed Pod of a template.

    Raises:
        MalformedObjectError: a field that rules read has the wrong type or an invalid quantity.
        OversizedObjectError: it requires too much of a node.
    """
    try:
        decoded = convert(template.raw, PodTemplate)
        spec = checked_spec(decoded)
    except MalformedObjectError as error:
        raise type(error)(template.at(error.path), error.problem) from error
    return Pod(spec, decoded.metadata, template)


def checked_spec(pod: PodTemplate) -> PodSpec:
    """Return the spec of a decoded Pod after the checks that its types do not make.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``pod_of`` does.
    """
    spec = pod.spec
    if spec is None:
        raise MalformedObjectError("spec", "is missing")
    _check_quantities(spec)
    for index, volume in enumerate(spec.volumes or ()):
        if "hostPath" in volume or type(volume.get("name")) is not str:
            _check_volume(volume, f"spec.volumes[{index}]")
    return spec


def check_size(pods: Iterable[Pod]) -> None:
    """Check that the Pods of an object do not exceed the limits.

    Raises:
        OversizedObjectError: they have too many of something.
    """
    largest = containers = devices = tolerations = volumes = requirements = values = uses = 0
    claims = set()
    for pod in pods:
        spec = pod.spec
        largest = max(largest, len(pod.containers))
        containers += len(pod.containers)
        devices += len(pod.device_resources)
        tolerations += len(spec.tolerations or ())
        volumes += len(spec.volumes or ())
        for term in (required_terms(spec) or ()) if spec.affinity else ():
            of_term = [*(term.match_expressions or ()), *(term.match_fields or ())]
            # An empty term counts, too.
            requirements += len(of_term) or 1
            for requirement in of_term:
                values += len(requirement.values or ())
        if spec.resource_claims:
            for entry in spec.resource_claims:
                claims.add((entry.resource_claim_name, entry.resource_claim_template_name))
            for container in pod.containers:
                resources = container.spec.resources
                uses += len((resources.claims if resources else None) or ())
    counts = (
        largest,
        containers,
        devices,
        tolerations,
        volumes,
        requirements,
        values,
        len(claims),
        uses,
    )
    if not any(map(gt, counts, LIMITS.values())):
        return
    for (what, limit), count in zip(LIMITS.items(), counts, strict=True):
        if count > limit:
            raise OversizedObjectError(
                "", f"it has {count:,} {what}; gpufence accepts up to {limit:,}"
            )


def _check_quantities(spec: PodSpec) -> None:
    given = [spec.overhead]
    if spec.resources is not None:
        given += (spec.resources.limits, spec.resources.requests)
    for containers in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        for container in containers or ():
            if (resources := container.resources) is not None:
                given += (resources.limits, resources.requests)
    try:
        for quantities in given:
            if quantities:
                for quantity in quantities.values():
                    parse_quantity(quantity)
    except InvalidQuantityError:
        # Read again with paths, which take longer to make than quantities to parse.
        for path, named in _quantities(spec):
            for name, quantity in named.items():
                _check_quantity(quantity, f"{path}[{name}]")


def _quantities(spec: PodSpec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the entries of each mapping with quantities."""
    yield "spec.overhead", spec.overhead or {}
    holders: list[tuple[str, PodSpec | ContainerSpec]] = [("spec", spec)]
    for kind, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        holders += [(f"spec.{kind}[{index}]", each) for index, each in enumerate(containers or ())]
    for path, holder in holders:
        resources = holder.resources or ResourceRequirements()
        yield f"{path}.resources.limits", resources.limits or {}
        yield f"{path}.resources.requests", resources.requests or {}


def _check_quantity(quantity: object, path: str) -> None:
    try:
        parse_quantity(quantity)
    except InvalidQuantityError as error:
        raise MalformedObjectError(path, str(error)) from error


def _check_volume(volume: dict[str, Any], where: str) -> None:
    """Check the two fields of a volume that rules read: its sources are typed as one."""
    name, host_path = volume.get("name"), volume.get("hostPath")
    if not isinstance(name, str | None):
        raise MalformedObjectError(f"{where}.name", _wrong_type("a string", name))
    if host_path is None:
        return
    path = getattr(host_path, "path", NotImplemented)
    if path is NotImplemented:
        raise MalformedObjectError(f"{where}.hostPath", _wrong_type("a mapping", host_path))
    if not isinstance(path, str | None):
        raise MalformedObjectError(f"{where}.hostPath.path", _wrong_type("a string", path))


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
_UNQUOTED = {("a string", "true or false"), ("a string", "a whole number")} | {
    ("a string", "a number with a fraction")
}


def _malformed(value: Any, message: str) -> MalformedObjectError:
    """Return the error for msgspec's message about a value."""
    match = _MESSAGE.fullmatch(message)
    path, problem = (match["path"] or "", match["problem"]) if match else ("", message)
    if match and match["key"]:
        path += " (a key)"
    elif path.endswith(_SOME_KEY):
        path = path.removesuffix(_SOME_KEY) + f"[{_wrong_key(value, path)}]"
    wrong = re.fullmatch(r"Expected `(?P<want>.*?)(?: \| null)?`, got `(?P<got>.*)`", problem)
    if wrong:
        want, got = (_WORDS.get(wrong[key], wrong[key]) for key in ("want", "got"))
        problem = _must_be(want, got)
    return MalformedObjectError(path.removeprefix("."), problem)


def _must_be(want: str, got: str) -> str:
    quote = "; put the value in quotes" if (want, got) in _UNQUOTED else ""
    return f"must be {want}, but is {got}{quote}"


def _wrong_type(want: str, value: object) -> str:
    kinds: tuple[tuple[Any, str], ...] = (
        (str, "str"),
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (list, "array"),
    )
    got = next((_WORDS[name] for kind, name in kinds if isinstance(value, kind)), "a mapping")
    return _must_be(want, got)


def _wrong_key(value: Any, path: str) -> str:
    """Return the key of the first value that is not a string, in the mapping at ``path``.

    msgspec reports only that there is one. The path contains fields, and no list.
    """
    for step in path.removesuffix(_SOME_KEY).split(".")[1:]:
        value = value[step]
    return next(str(key) for key, item in value.items() if not isinstance(item, str | None))

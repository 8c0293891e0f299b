"""Verdicts on manifests: the engine's decision on each object, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from policies.decision import Decision
from policies.engine import decide
from policies.facts import NAMESPACE_LABEL, Facts, Request
from policies.finding import Edit, Finding
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.editor import PatchOperation
from policies.kubernetes.objects import JSONObject, MalformedObjectError, ObjectKey, mapping
from policies.kubernetes.paths import descend, pointer, steps
from policies.kubernetes.workload import convert
from policies.policy import Policy
from webhook.controller.text.objects import ALWAYS_EXCLUDED
from webhook.kube.claims import GROUP, read_claim
from webhook.tools.custom_resources import workload
from webhook.tools.documents.document import DocumentError
from webhook.tools.documents.objects import Manifest, locate

_FACTS = re.compile("Namespace|ResourceClaim|DeviceClass|ComputeDomain|RuntimeClass")
"""The kinds of the objects that are facts for Pods."""

_COMPUTE_DOMAINS = "resource.nvidia.com"
_CHANNEL = "compute-domain-default-channel.nvidia.com"

Verdict = Literal["allowed", "mutated", "denied", "unknown", "skipped", "invalid"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Complete = Callable[[Request, Facts, JSONObject], Facts]
"""Adds facts about the cluster to those about one object."""

# envsubst and Flux: ${NAME}, $NAME, $(NAME); Helm and Jinja: {{ name }}; instructions: <name>;
# Chainsaw: ($name); sed: %NAME% and x-@NAME@.
_PLACEHOLDER = re.compile(
    r"\$\{[^}]*\}|\$\([^)]*\)|\(\$[^)]*\)|\$[A-Z_][A-Z0-9_]*|\{\{.*\}\}|<[^<>]+>"
    r"|%[A-Z_]+%|@[A-Z][A-Z0-9_]*@",
    re.DOTALL,
)
_MISSING_CURE = "Add it as the API documents it, or remove the object"


_NONE = Decision(has_template=False)


class Result(msgspec.Struct, eq=False):
    """The verdict on one object.

    ``decision`` is empty if the verdict is ``invalid``, or if the document is not an object of the
    API. ``error`` explains an invalid object. ``duplicate`` is about a key that is set twice; the
    verdict is on the object as kubectl reads it. ``note`` says why a document in a directory is
    skipped. ``namespace`` is the object's own, or the one in which it is checked. The decision
    depends on ``request`` and ``facts``.
    """

    manifest: Manifest
    verdict: Verdict
    decision: Decision = _NONE
    namespace: str = ""
    error: DocumentError | None = None
    duplicate: DocumentError | None = None
    note: str = ""
    request: Request = Request()
    facts: Facts = Facts()

    @property
    def operations(self) -> list[PatchOperation]:
        """The operations of the mutations, on the whole document."""
        place = pointer(self.manifest.path)
        return [
            replace(operation, path=place + operation.path)
            for operation in self.decision.operations
        ]

    @property
    def api_version(self) -> str:
        return _text(self._value, "apiVersion")

    @property
    def kind(self) -> str:
        return _text(self._value, "kind")

    @property
    def name(self) -> str:
        """The object's name; for a generated name, the known part with ``*`` at the end."""
        generated = _text(self._value, "metadata", "generateName")
        return _text(self._value, "metadata", "name") or (generated and f"{generated}*")

    @property
    def is_object(self) -> bool:
        """Whether there is an object, or a document that should be one: not an unreadable file."""
        return bool(self.kind or self.manifest.document.text or self.error is None)

    @property
    def title(self) -> str:
        """Kind, namespace and name, as far as they are known; else what was read."""
        if not self.kind:
            document = self.manifest.document
            return f"document {document.index + 1}" if document.text else "file"
        name = "/".join(filter(None, (self.namespace, self.name)))
        return f"{self.kind} {name}".rstrip(" ")

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.decision.findings

    def fix(self, finding: Finding) -> list[Edit]:
        """Return the edits that fix a finding: those of fields that a mutation adds do nothing."""
        return [
            edit
            for edit in finding.fix
            if edit.kind in ("set", "append") or descend(self._value, steps(edit.path)) is not None
        ]

    @property
    def _value(self) -> JSONObject:
        return self.manifest.value or {}


def evaluate(
    manifests: Sequence[Manifest],
    policy: Policy,
    request: Request,
    complete: Complete = lambda _request, facts, _obj: facts,
    facts_in: Callable[[str], Facts] | None = None,
) -> Iterator[Result]:
    """Yield a result for each object, in order.

    ``request`` writes each object, in the object's own namespace if it sets one. ``facts_in`` are
    the facts of a namespace, by default those among the objects. ``complete`` adds facts about the
    cluster.
    """
    facts_in = facts_among(manifests, request.namespace) if facts_in is None else facts_in
    for manifest in manifests:
        if manifest.error is not None:
            yield Result(manifest, "invalid", error=manifest.error)
            continue
        if manifest.value is None:
            yield Result(manifest, "skipped", duplicate=manifest.duplicate, note=manifest.note)
            continue
        own = _text(manifest.value, "metadata", "namespace")
        writing = replace(request, namespace=own) if own else request
        facts = complete(writing, facts_in(writing.namespace), manifest.value)
        yield _judge(manifest, manifest.value, policy, writing, facts, own)


def facts_among(manifests: Iterable[Manifest], namespace: str) -> Callable[[str], Facts]:
    """Return a function from a namespace to the facts there, which objects are for Pods.

    These are claims, claim templates, device classes, namespaces and RuntimeClasses. Objects
    without a namespace are in ``namespace``.
    """
    values = (manifest.value for manifest in manifests if manifest.value is not None)
    objects = [value for value in values if _FACTS.search(_text(value, "kind"))]
    claims, templates, classes = read_claims(
        (_text(obj, "metadata", "namespace") or namespace, obj) for obj in objects
    )
    labels: dict[str, JSONObject] = {}
    for obj in objects:
        if obj.get("kind") == "Namespace" and obj.get("apiVersion") == "v1":
            name = _text(obj, "metadata", "name")
            written = mapping(descend(obj, ("metadata", "labels")))
            labels[name] = {**written, NAMESPACE_LABEL: name}

    scheduling = dict(_scheduling(objects))

    @cache
    def facts_in(name: str) -> Facts:
        return Facts(
            claims=claims,
            claim_templates=templates,
            extended_resource_classes=classes,
            namespace_labels=labels.get(name),
            runtime_scheduling=scheduling,
        )

    return facts_in


def read_claims(
    objects: Iterable[tuple[str, JSONObject]],
) -> tuple[dict[ObjectKey, Claim], dict[ObjectKey, Claim], dict[str, str]]:
    """Return claims, claim templates and extended resource classes among ``objects``.

    Each object comes with the namespace it is in; the results are the fields ``claims``,
    ``claim_templates`` and ``extended_resource_classes`` of ``Facts``. Other kinds are passed over.
    For a ComputeDomain, NVIDIA's DRA driver makes the ResourceClaimTemplate that it names
    (NVIDIA/k8s-dra-driver-gpu, ``templates/compute-domain-workload-claim-template.tmpl.yaml``).
    """
    claims: dict[ObjectKey, Claim] = {}
    templates: dict[ObjectKey, Claim] = {}
    classes: dict[str, str] = {}
    for namespace, obj in objects:
        group = str(obj.get("apiVersion")).partition("/")[0]
        name, spec = mapping(obj.get("metadata")).get("name"), mapping(obj.get("spec"))
        if group == _COMPUTE_DOMAINS and obj.get("kind") == "ComputeDomain":
            made = mapping(mapping(spec.get("channel")).get("resourceClaimTemplate")).get("name")
            if isinstance(made, str):
                templates[namespace, made] = Claim((frozenset({_CHANNEL}),))
        if group != GROUP:
            continue
        if not isinstance(name, str):
            continue
        match obj.get("kind"):
            case "ResourceClaim":
                claims[namespace, name] = read_claim(spec, obj.get("status"))
            case "ResourceClaimTemplate":
                templates[namespace, name] = read_claim(spec.get("spec"))
            case "DeviceClass" if isinstance(spec.get("extendedResourceName"), str):
                classes[spec["extendedResourceName"]] = name
    return claims, templates, classes


def _scheduling(objects: Iterable[JSONObject]) -> Iterator[tuple[str, PodSpec]]:
    """Yield the RuntimeClasses that add tolerations or a node selector to their Pods."""
    for obj in objects:
        if obj.get("kind") == "RuntimeClass":
            with suppress(MalformedObjectError):
                added = convert(mapping(obj.get("scheduling")), PodSpec)
                if added.tolerations or added.node_selector:
                    yield _text(obj, "metadata", "name"), added


def _judge(
    manifest: Manifest, value: JSONObject, policy: Policy, request: Request, facts: Facts, own: str
) -> Result:
    try:
        decision = decide(
            workload(value, policy), policy, request, facts, excluded_namespaces=ALWAYS_EXCLUDED
        ).checked()
    except MalformedObjectError as malformed:
        field = descend(value, steps(malformed.path))
        placeholder = _PLACEHOLDER.search(field) if isinstance(field, str) else None
        if manifest.document.lenient and placeholder:
            note = f"{malformed.path} is the placeholder {placeholder[0]}"
            return Result(manifest, "skipped", namespace=own, note=note)
        position = locate(manifest.document, manifest.path, malformed.path)
        line, column = position[:2] if position else (manifest.line, 0)
        cure = _MISSING_CURE if malformed.problem == "is missing" else ""
        error = DocumentError(str(malformed), line=line, column=column, cure=cure)
        return Result(manifest, "invalid", namespace=own, error=error)
    namespace = request.namespace if decision.has_template else own
    return Result(
        manifest,
        decision.verdict,
        decision,
        namespace,
        duplicate=manifest.duplicate,
        request=request,
        facts=facts,
    )


def _text(value: JSONObject, *path: str) -> str:
    """Return the string at a path; empty if there is none."""
    text = descend(value, path)
    return text if isinstance(text, str) else ""

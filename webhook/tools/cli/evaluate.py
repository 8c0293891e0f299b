"""Verdicts on manifests: the engine's decision on each object, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from policies.decision import Decision
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.editor import PatchOperation
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import descend, pointer, steps, text_at
from policies.policy import Policy
from webhook.cluster.judge import Judgement
from webhook.cluster.manifests import Complete, facts_among
from webhook.documents.document import DocumentError
from webhook.documents.objects import Manifest, locate
from webhook.tools.cli.edits import Edit, Fixes, fixes
from webhook.tools.custom_resources import judged

Verdict = Literal["allowed", "mutated", "denied", "unknown", "skipped", "invalid"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

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
    judgement: Judgement = Judgement()
    fixes: Fixes = {}

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
        return text_at(self._value, "apiVersion")

    @property
    def kind(self) -> str:
        return text_at(self._value, "kind")

    @property
    def name(self) -> str:
        """The object's name; for a generated name, the known part with ``*`` at the end."""
        generated = text_at(self._value, "metadata", "generateName")
        return text_at(self._value, "metadata", "name") or (generated and f"{generated}*")

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

    def fix(self, finding: Finding) -> tuple[Edit, ...]:
        """Return the edits that fix a finding; none if no remedy is obvious."""
        return self.fixes.get(finding, ())

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
        value = manifest.value

        @cache
        def known(namespace: str, value: JSONObject = value) -> Facts:
            return complete(replace(request, namespace=namespace), facts_in(namespace), value)

        judgement, inside = judged(value, policy, request, known)
        facts = known(inside.namespace)
        result = _result(manifest, judgement, inside, facts, request.namespace)
        found = (*result.findings, *result.decision.excepted)
        edits = fixes(value, policy, inside, facts, found)
        yield replace(result, fixes=edits)


def _result(
    manifest: Manifest, judgement: Judgement, request: Request, facts: Facts, default: str
) -> Result:
    own = text_at(manifest.value, "metadata", "namespace")
    error: DocumentError | None = None
    if malformed := judgement.error:
        field = descend(manifest.value, steps(malformed.path))
        placeholder = _PLACEHOLDER.search(field) if isinstance(field, str) else None
        if manifest.document.lenient and placeholder:
            note = f"{malformed.path} is the placeholder {placeholder[0]}"
            return Result(manifest, "skipped", namespace=own, note=note)
        if manifest.document.lenient and str(malformed) == "spec: is missing":
            # The same part of a workload has no pod template.
            return Result(manifest, "skipped", namespace=own, note="has no spec, as a patch may")
        position = locate(manifest.document, manifest.path, malformed.path)
        line, column = position[:2] if position else (manifest.line, 0)
        cure = _MISSING_CURE if malformed.problem == "is missing" else ""
        error = DocumentError(str(malformed), line=line, column=column, cure=cure)
    elif not judgement.is_decided:
        error = DocumentError("; ".join(judgement.bugs), line=manifest.line)
    if error is not None:
        return Result(manifest, "invalid", judgement=judgement, namespace=own, error=error)
    decision = judgement.decision
    namespace = own or (default if decision.has_template else "")
    return Result(
        manifest,
        decision.verdict,
        decision,
        namespace,
        duplicate=manifest.duplicate,
        request=request,
        facts=facts,
        judgement=judgement,
    )

"""The outcome for one object."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from policies.finding import Finding
from policies.kubernetes.editor import PatchOperation, clone
from policies.kubernetes.objects import JSONObject, MalformedObjectError
from policies.kubernetes.template import Unjudged

Verdict = Literal["allowed", "mutated", "denied", "unknown", "skipped"]


class Failure(msgspec.Struct, frozen=True, gc=False):
    """What a rule that does not enforce raised: the object is decided without the rule."""

    rule: str
    error: Exception


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The outcome for one object.

    ``operations`` are the JSON Patch operations of the mutations. ``exemption`` says why the policy
    does not apply. ``pools`` names the pools whose devices the object requests.
    """

    source: JSONObject | bytes = b""
    """The object: as parsed, as JSON text, or empty for a Pod that was decoded into its type."""
    operations: tuple[PatchOperation, ...] = ()
    findings: tuple[Finding, ...] = ()
    exemption: str = ""
    pools: tuple[str, ...] = ()
    has_template: bool = True
    excepted: tuple[Finding, ...] = ()
    """Findings that an exception of the policy covers: they do not count."""
    known: tuple[Finding, ...] = ()
    """On UPDATE, findings that the old object already had: they do not count."""
    missing_facts: tuple[str, ...] = ()
    """The cluster facts (``policies.context``) that are unknown and that may change the verdict."""
    unjudged: tuple[Unjudged, ...] = ()
    """The parts of the object whose Pods are judged only when they are created."""

    mutations: tuple[str, ...] = ()
    """The mutation that each operation comes from, by its ID."""
    failures: tuple[Failure, ...] = ()

    @property
    def original(self) -> JSONObject:
        """The object as parsed JSON. JSON text is parsed each time, and not kept."""
        if isinstance(self.source, bytes):
            return msgspec.json.decode(self.source, type=JSONObject) if self.source else {}
        return self.source

    @property
    def mutated(self) -> JSONObject:
        """The object with the operations applied, or the original itself without any."""
        return patched(self.original, self.operations)

    def mutated_by(self, mutations: Collection[str]) -> JSONObject:
        """Return the object with the operations of these mutations applied."""
        pairs = zip(self.mutations, self.operations, strict=True)
        return patched(self.original, [op for rule, op in pairs if rule in mutations])

    def checked(self) -> Decision:
        """Return the decision if no rule found the object malformed.

        Raises:
            MalformedObjectError: a rule that does not enforce found it malformed, or too large.
        """
        for failure in self.failures:
            if isinstance(failure.error, MalformedObjectError):
                raise failure.error
        return self

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to report: no finding, counting or not, and no exemption."""
        return not (self.findings or self.excepted or self.known or self.exemption)

    @property
    def allowed(self) -> bool:
        return not any(finding.action == "enforce" for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        if not self.allowed:
            return "denied"
        if self.unjudged:
            return "unknown"
        if not self.has_template:
            return "skipped"
        return "mutated" if self.operations else "allowed"


def patched(obj: JSONObject, operations: Sequence[PatchOperation]) -> JSONObject:
    """Return a copy of the object with the operations applied, as RFC 6902 has it."""
    if not operations:
        return obj
    # The webhook answers with the operations: only files and audits need the object.
    from jsonpatch import JsonPatch

    # The copy shares nothing, also where the YAML of the object has aliases.
    copy: JSONObject = JsonPatch(msgspec.to_builtins(operations)).apply(clone(obj), in_place=True)
    return copy

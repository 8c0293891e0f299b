"""The outcome for one object."""

from __future__ import annotations

from typing import Literal

import msgspec

from policies.finding import Finding
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.template import Unjudged

Verdict = Literal["allowed", "mutated", "denied", "unknown", "skipped"]


class Decision(msgspec.Struct, frozen=True):
    """The outcome for one object.

    ``mutated`` is ``original`` itself if nothing was added. ``exemption`` says why the policy does
    not apply. ``pools`` names the pools whose devices the object requests.
    """

    original: JSONObject
    mutated: JSONObject
    findings: tuple[Finding, ...] = ()
    exemption: str = ""
    pools: tuple[str, ...] = ()
    has_template: bool = True
    excepted: tuple[Finding, ...] = ()
    """Findings that an exception of the policy covers: they do not count."""
    known: tuple[Finding, ...] = ()
    """On UPDATE, findings that the old object already had: they do not count."""
    unjudged: tuple[Unjudged, ...] = ()
    """The parts of the object whose Pods are judged only when they are created."""

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
        return "allowed" if self.mutated is self.original else "mutated"

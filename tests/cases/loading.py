"""Reads the cases, manifests on disk with their expected outcome: README.md has the rules."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml

from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Operation, Request
from policies.finding import Finding
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from policies.registry import RULES
from policies.shipped import PRESETS
from specs import default_spec, policy_of
from webhook.cluster.files import put
from webhook.cluster.gangs import read_gangs
from webhook.cluster.manifests import read_claims
from webhook.cluster.state import ClusterState
from webhook.tools.cli.edits import Edit, Fixes, fixes
from webhook.tools.custom_resources import workload

HERE = Path(__file__).parent

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_HEADER = {"kind", "each", "policy", "rules", "namespace", "username"} | {
    *("operation", "subresource", "old", "today")
}


@dataclass(frozen=True, slots=True)
class Case:
    """One manifest, the rule that it is about, and where its expected outcome stands.

    ``expected`` is the file of the expected findings, ``after`` that of the whole mutated object.
    Of a file with ``each`` in its header, every further ``document`` is a case, under its ``name``.
    """

    rule: str
    passes: bool
    manifest: Path
    expected: Path
    after: Path | None = None
    document: int = -1
    name: str = ""

    def __str__(self) -> str:
        path = str(self.manifest.relative_to(HERE).with_suffix("")).removesuffix("/before")
        return f"{path}/{self.name}" if self.name else path

    @property
    def object(self) -> JSONObject:
        """The object that is decided on."""
        return self._parts()[0]

    @property
    def is_update(self) -> bool:
        return self._parts()[1].get("operation") == "UPDATE"

    def decide(self, instead: JSONObject | None = None) -> Decision:
        """Decide on the object, or another one, with this rule and no other of its kind."""
        obj, spec, request, facts = self._read(self._others_off())
        policy = compiled(spec)
        decision = decide(workload(instead or obj, policy), policy, request, facts)
        assert not decision.failures
        return decision

    def fixes(self, obj: JSONObject, findings: Sequence[Finding]) -> Fixes:
        """Return the edits that fix findings on the object, or on another one."""
        _, spec, request, facts = self._read(self._others_off())
        return fixes(obj, compiled(spec), request, facts, findings)

    def read(self) -> tuple[JSONObject, JSONObject, Request, Facts]:
        """Return the object, the spec of the policy with every rule at work, request and facts."""
        return self._read({})

    def _read(self, off: dict[str, str]) -> tuple[JSONObject, JSONObject, Request, Facts]:
        """Read the case; the rules ``off`` are off unless the header chooses their action."""
        obj, header, others = self._parts()
        spec = policy_spec(header.get("policy", "default"))
        spec["rules"] = spec.get("rules", {}) | off | header.get("rules", {})
        request = _request(header)
        return obj, spec, request, _facts(request.namespace, others)

    def _parts(self) -> tuple[JSONObject, JSONObject, list[JSONObject]]:
        """Return the object, the header and the facts as they are written."""
        documents = load_all(self.manifest.read_text())
        obj = documents[self.document]
        header = documents[0] if documents[0].get("kind") == "Case" else {}
        others = [] if self.name else documents[bool(header) : -1]
        if unknown := set(header) - _HEADER:
            raise ValueError(f"{self.manifest}: unknown keys in its header: {sorted(unknown)}")
        return obj, header, others

    def _others_off(self) -> dict[str, str]:
        """A mutation's case tests it alone, a check's case tests it behind all the mutations."""
        mutation = self.after is not None
        return {
            rule.id: "off"
            for rule in RULES
            if rule.id != self.rule and (mutation or not rule.is_mutation)
        }


def _request(header: JSONObject) -> Request:
    operation: Operation = header.get("operation", "CREATE")
    assert operation in get_args(Operation)
    return Request(
        namespace=header.get("namespace", "default"),
        username=header.get("username", "alice"),
        operation=operation,
        subresource=header.get("subresource", ""),
        old=header.get("old"),
        today=date.fromisoformat(header["today"]) if "today" in header else None,
    )


def _facts(namespace: str, others: list[JSONObject]) -> Facts:
    claims, claim_templates, classes = read_claims(
        (fact["metadata"].get("namespace", namespace), fact) for fact in others
    )
    runtime_classes = {
        fact["metadata"]["name"]: fact["handler"]
        for fact in others
        if fact["kind"] == "RuntimeClass"
    }
    namespaces = {
        fact["metadata"]["name"]: fact["metadata"].get("labels", {})
        for fact in others
        if fact["kind"] == "Namespace"
    }
    published = ClusterState(None)
    for fact in others:
        if fact["kind"] in ("DeviceClass", "Node", "NodePool", "ResourceSlice"):
            put(published, fact)
    gangs, quotas = read_gangs((namespace, fact) for fact in others)
    return Facts(
        claims=claims,
        host_shares=published.offers.published.host_shares,
        claim_templates=claim_templates,
        extended_resource_classes=classes,
        gangs=gangs,
        quotas=quotas,
        nodes=published.nodes.index if len(published.nodes) else None,
        templates=published.templates,
        namespace_labels=namespaces.get(namespace),
        runtime_classes=runtime_classes,
    )


def cases_of_check(rule: str) -> list[Case]:
    """Return the cases in ``<rule>/pass`` and ``<rule>/fail``."""
    return [
        case
        for outcome in ("pass", "fail")
        for file in sorted((HERE / rule / outcome).glob("*.yaml"))
        if not file.name.endswith(".expected.yaml")
        for case in _cases(Case(rule, outcome == "pass", file, file.with_suffix(".expected.yaml")))
    ]


def cases_of_mutation(rule: str) -> list[Case]:
    """Return the cases in ``<rule>/<situation>``."""
    return [
        case
        for before in sorted((HERE / rule).glob("*/before.yaml"))
        for case in _cases(
            Case(
                rule,
                True,
                before,
                before.with_name("expected.yaml"),
                before.with_name("after.yaml"),
            )
        )
    ]


def _cases(whole: Case) -> list[Case]:
    """Return the cases of a file: one, or each document after the header."""
    documents = load_all(whole.manifest.read_text())
    if not documents[0].get("each"):
        return [whole]
    return [
        replace(whole, document=number, name=obj["metadata"]["name"])
        for number, obj in enumerate(documents)
        if number
    ]


def policy_spec(name: str) -> JSONObject:
    """Return the spec of the policy ``default``, of a preset, or of one of ``policies/``."""
    if name == "default":
        return default_spec()
    files = [HERE / "policies" / f"{name}.yaml", PRESETS / f"{name}.yaml"]
    (document,) = load_all(next(file for file in files if file.exists()).read_text())
    spec: JSONObject = document["spec"]
    return spec


def compiled(spec: JSONObject) -> Policy:
    return _compiled(json.dumps(spec, default=str))


@cache
def _compiled(spec: str) -> Policy:
    return policy_of(json.loads(spec))


def load_all(text: str) -> list[JSONObject]:
    """Return the YAML documents of a text."""
    documents: list[JSONObject] = pickle.loads(_pickled(text))  # noqa: S301 - of this process
    return documents


@cache
def _pickled(text: str) -> bytes:
    """Parse a text once: tests read each case several times, and change what they read."""
    return pickle.dumps(list(yaml.load_all(text, _LOADER)))


def dump(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, width=100, allow_unicode=True))


def as_written(finding: Finding, fix: Sequence[Edit] = ()) -> JSONObject:
    """Return a finding as an ``expected.yaml`` has it; ``enforce`` goes without saying."""
    shown = {
        "rule": finding.rule,
        "path": finding.path,
        "reason": finding.reason,
        "detail": finding.detail,
        "remediation": finding.remediation,
    }
    if finding.action != "enforce":
        shown["action"] = finding.action
    return shown | ({"fix": [*map(str, fix)]} if fix else {})

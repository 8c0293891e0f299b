"""What the API server answered to requests for Pods and workloads, from its audit log."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import yaml

RESOURCES = ("pods", "jobs", "statefulsets", "deployments", "replicasets")
QUIET_FOR = 6.0
"""Seconds without another creation after which an operator is done."""
WAIT_AT_MOST = 60.0


class Outcome(NamedTuple):
    """The answer to a creation, or to an update that gpufence denied.

    ``verdict`` is allowed, mutated, denied or failed.
    """

    resource: str
    verdict: str
    message: str


class AuditLog:
    """The audit log of an API server, read by several threads while it is written."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._read = 0
        self._outcomes: dict[str, list[Outcome]] = defaultdict(list)
        self._log = directory / "audit.log"
        self._policy = directory / "audit-policy.yaml"
        groups = [{"group": group} for group in ("", "batch", "apps")]
        for group in groups:
            group["resources"] = list(RESOURCES)  # type: ignore[assignment]
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "verbs": ["create", "patch", "update"], "resources": groups},
                {"level": "None"},
            ],
        }
        self._policy.write_text(yaml.safe_dump(policy))

    @property
    def flags(self) -> list[str]:
        """The API server's flags."""
        return [f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}"]

    def settled(self, namespace: str) -> list[Outcome]:
        """Wait until nothing more is created in the namespace, and return all outcomes."""
        started = changed = time.monotonic()
        outcomes: list[Outcome] = []
        while True:
            now = time.monotonic()
            found = self.outcomes(namespace)
            if len(found) != len(outcomes):
                outcomes, changed = found, now
            quiet = outcomes and now - changed > QUIET_FOR
            if quiet or now - started > WAIT_AT_MOST:
                return outcomes
            time.sleep(0.2)

    def outcomes(self, namespace: str) -> list[Outcome]:
        """Return the answers in the namespace up to now."""
        with self._lock:
            for event in self._new_events():
                reference = event["objectRef"]
                if "subresource" in reference:
                    continue
                outcome = _outcome(reference["resource"], event)
                # Server-side apply, which LeaderWorkerSet creates with, is a patch.
                if event["verb"] == "create" or outcome.verdict == "denied":
                    self._outcomes[reference["namespace"]].append(outcome)
            return list(self._outcomes[namespace])

    def _new_events(self) -> list[dict[str, Any]]:
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._read)
            # The API server may be in the middle of a line.
            lines, newline, _ = log.read().rpartition(b"\n")
        self._read += len(lines) + len(newline)
        return [json.loads(line) for line in lines.splitlines()]


def _outcome(resource: str, event: dict[str, Any]) -> Outcome:
    status = event["responseStatus"]
    message = status.get("message", "")
    if status["code"] >= 400:
        return Outcome(resource, "denied" if "gpufence" in message else "failed", message)
    changed = any(
        '"configuration":"gpufence"' in value and '"mutated":true' in value
        for key, value in event.get("annotations", {}).items()
        if key.startswith("mutation.webhook.admission.k8s.io/")
    )
    return Outcome(resource, "mutated" if changed else "allowed", "")


def verdict(outcomes: list[Outcome]) -> str:
    """Return the verdict on a resource that the answers to its Pods amount to."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    if counts["denied"]:
        return "denied"
    if not any(outcome.resource == "pods" for outcome in outcomes):
        return "no Pods"
    return "mutated" if counts["mutated"] else "allowed"

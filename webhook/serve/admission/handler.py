"""Handles an AdmissionReview: decode, decide, encode.

``/mutate`` adds to Pods and reports no findings: later webhooks may still change the Pod.
``/validate`` checks the result. Both reject a malformed object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import date
from http import HTTPStatus
from typing import Literal, Protocol, get_args

from policies.decision import Decision, Failure
from policies.engine import mutate, validate
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.editor import PatchOperation
from policies.kubernetes.objects import MalformedObjectError, is_too_deep
from policies.kubernetes.templates import is_core_workload
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from webhook.logs import event
from webhook.serve.admission import messages, review
from webhook.serve.metrics.replica import Metrics, Result, kind_label

Endpoint = Literal["/mutate", "/validate"]
ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)

_OPERATIONS = frozenset({"CREATE", "UPDATE"})

# Of a Pod's subresources, those whose object is the Pod with another spec. The others (status,
# binding, scale, ...) change no field that a rule reads, and a cluster cannot work without them.
_SUBRESOURCES = frozenset({"", "ephemeralcontainers", "resize"})

_NO_FACTS = Facts()

_log = logging.getLogger("gpufence")


class Cluster(Protocol):
    """The source of cluster facts (``webhook.cluster.facts``)."""

    async def facts_for(self, request: Request, obj: Workload, seconds: float) -> Facts:
        """Return the cluster facts for a request and its object."""


class Admission:
    """Answers reviews with one policy. Between calls, it keeps only the policy and the counters.

    Without a ``cluster``, decisions use no nodes, claims and other cluster facts.
    """

    def __init__(
        self,
        policy: Policy,
        metrics: Metrics,
        today: Callable[[], date],
        cluster: Cluster | None = None,
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._today = today
        self._cluster = cluster

    def use(self, policy: Policy) -> None:
        """Use another policy from now on."""
        self._policy = policy

    async def answer(self, endpoint: Endpoint, body: bytes, seconds: float) -> bytes:
        """Return the body of the response within ``seconds``: a review with the caller's uid.

        Raises:
            RefusedError: the body is no review that can be decided on.
        """
        request = review.decode(body)
        answer, result = await self._respond(endpoint, request, seconds)
        kind = kind_label(request.kind.api_version, request.kind.kind)
        self._metrics.count_response(endpoint, result, request.operation, kind)
        return review.encode(answer)

    async def _respond(
        self, endpoint: Endpoint, request: review.AdmissionRequest, seconds: float
    ) -> tuple[review.Response, Result]:
        """Return the response, also for errors."""
        uid, kind, facts = request.uid, request.kind.kind, _NO_FACTS
        try:
            if request.operation not in _OPERATIONS or request.sub_resource not in _SUBRESOURCES:
                return review.allowed(uid), "allowed"
            obj = review.object_of(request)
            if endpoint == "/mutate" and not request.is_pod:
                # A mutated workload would show as drift in GitOps; its Pods are mutated instead.
                return review.allowed(uid), "allowed"
            writing = request.to_engine(self._today())
            if self._cluster is not None:
                facts = await self._cluster.facts_for(writing, obj, seconds)
            if endpoint == "/mutate":
                return _mutate(request, mutate(obj, self._policy, writing, facts))
            decision = validate(obj, self._policy, writing, facts)
            self._report(request, decision.failures)
            return self._validate(request, obj, decision)
        except review.RefusedError as error:
            _log_request(logging.WARNING, "bad request", endpoint, request, problem=str(error))
            return review.denied(uid, HTTPStatus.BAD_REQUEST, str(error)), "bad_request"
        except MalformedObjectError as error:
            fault, problem = error.fault, str(error)
        except Exception as error:
            if not (isinstance(error, RecursionError) and is_too_deep(request.object)):
                self._metrics.failed()
                _log_request(logging.ERROR, "internal error", endpoint, request, failure=True)
                message = _internal_error_message(request)
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                return self._deny(request, facts, status, message), "error"
            fault, problem = MalformedObjectError.fault, "it is nested too deeply"
        _log_request(logging.INFO, "malformed object", endpoint, request, problem=problem)
        message = f"gpufence cannot check this {kind}, because it is {fault}: {problem}"
        core = {"apiVersion": request.kind.api_version, "kind": kind}
        if not (request.is_pod or is_core_workload(core)):
            # Its operator defines its fields, and gpufence checks its Pods.
            return review.allowed(uid, warnings=[messages.warning(message)]), "malformed"
        return self._deny(request, facts, HTTPStatus.UNPROCESSABLE_ENTITY, message), "malformed"

    def _report(self, request: review.AdmissionRequest, failures: Sequence[Failure]) -> None:
        """Log and count the errors of rules that do not enforce. They change no response."""
        for failure in failures:
            rule, error = failure.rule, failure.error
            if isinstance(error, MalformedObjectError):
                _log_request(
                    logging.INFO,
                    "malformed object",
                    "/validate",
                    request,
                    rule=rule,
                    problem=str(error),
                )
            else:
                self._metrics.rule_failed(rule)
                _log_request(
                    logging.ERROR, "rule failed", "/validate", request, failure=error, rule=rule
                )

    def refused(self, uid: str, status: HTTPStatus, problem: str) -> review.Response:
        """Return the response to a review that is not decided on; its namespace is unknown."""
        if self._policy.enforces:
            return review.denied(uid, status, problem)
        return review.allowed(uid)

    def _deny(
        self, request: review.AdmissionRequest, facts: Facts, code: HTTPStatus, message: str
    ) -> review.Response:
        """Deny the request for an error. In another mode than enforce, allow it and say so."""
        mode = self._policy.actions_in(request.namespace, facts.namespace_labels).mode
        if mode == "enforce":
            return review.denied(request.uid, code, message)
        warnings = [messages.warning(message)] if mode == "warn" else []
        return review.allowed(request.uid, warnings=warnings)

    def _validate(
        self, request: review.AdmissionRequest, obj: Workload, decision: Decision
    ) -> tuple[review.Response, Result]:
        """Deny the request for enforced findings, and report the others."""
        if not decision.has_template and obj.is_core_workload:
            raise MalformedObjectError("", "it has no pod template")
        if decision.is_silent:
            return review.allowed(request.uid), "allowed"
        findings = decision.findings
        annotations = messages.audit_annotations(decision)
        known = _reported_known(request, obj, decision.known)
        warnings = messages.warnings([f for f in findings if f.action == "warn"], known)
        self._metrics.count_findings(findings)
        if weakened := sorted({f.rule for f in findings if f.outcome == "would_enforce"}):
            _log_request(logging.INFO, "not enforced", "/validate", request, rules=weakened)
        if decision.allowed:
            answer = review.allowed(request.uid, annotations=annotations, warnings=warnings)
            return answer, "allowed"
        enforced = [finding for finding in findings if finding.action == "enforce"]
        rules = sorted({finding.rule for finding in enforced})
        _log_request(logging.INFO, "denied", "/validate", request, rules=rules)
        name = f"{request.kind.kind} {request.namespace}/{obj.name}"
        message = messages.denial(enforced, name, self._policy.help)
        answer = review.denied(
            request.uid,
            HTTPStatus.FORBIDDEN,
            message,
            annotations=annotations,
            warnings=warnings,
        )
        return answer, "denied"


def _mutate(
    request: review.AdmissionRequest, operations: tuple[PatchOperation, ...]
) -> tuple[review.Response, Result]:
    """Patch the Pod.

    No audit annotations: an API server calls again after another webhook has changed the Pod, and
    rejects a second annotation of the same name with another value.
    """
    answer = review.patched(request.uid, operations, messages.assigned_user(operations))
    return answer, "patched" if operations else "allowed"


def _reported_known(
    request: review.AdmissionRequest, obj: Workload, known: Sequence[Finding]
) -> list[Finding]:
    """Return the known findings to warn about: those of workloads that users change.

    Only controllers update Pods, and objects with a controller such as ReplicaSets.
    """
    if not known or request.is_pod:
        return []
    if any(owner.controller for owner in obj.metadata.owner_references or ()):
        return []
    return [finding for finding in known if finding.action in ("enforce", "warn")]


def _internal_error_message(request: review.AdmissionRequest) -> str:
    kind = request.kind.kind
    return (
        f"an internal error of gpufence prevents the check of this {kind}, so gpufence rejects it. "
        f"The {kind} is not the cause: contact the cluster administrator, who finds the error "
        f"under uid {request.uid} in the log of gpufence. An exemption in the policy, or another "
        "action for the rule in the log, admits such objects until the error is fixed"
    )


def _log_request(
    level: int,
    name: str,
    endpoint: Endpoint,
    request: review.AdmissionRequest,
    *,
    failure: bool | Exception = False,
    **fields: object,
) -> None:
    event(
        _log,
        level,
        name,
        failure=failure,
        path=endpoint,
        uid=request.uid,
        operation=request.operation,
        kind=request.kind.kind,
        namespace=request.namespace,
        name=_name(request),
        user=request.user_info.username,
        dryRun=bool(request.dry_run),
        **fields,
    )


def _name(request: review.AdmissionRequest) -> str:
    """Return the object's name, or the prefix that it is generated from."""
    if request.name or request.object is None:
        return request.name
    try:
        return Workload(request.object).name
    except MalformedObjectError:
        return ""

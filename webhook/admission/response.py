"""AdmissionReview responses to an API server.

Source of the wire format: ``k8s.io/api/admission/v1``, ``types.go``; of the handling in the API
server: ``k8s.io/apiserver``, ``pkg/admission/plugin/webhook/request/admissionreview.go`` and
``pkg/admission/plugin/webhook/errors/statuserror.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from policies.kubernetes.editor import PatchOperation

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

# What the API calls them (k8s.io/apimachinery, pkg/apis/meta/v1/types.go).
_REASONS = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
}

_encoder = msgspec.json.Encoder()


class Status(msgspec.Struct, frozen=True):
    """Why a request was denied (``metav1.Status``)."""

    code: int
    reason: str
    message: str


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An AdmissionResponse. ``patch`` holds JSON, which the wire carries in base64."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch_type: str = ""
    patch: bytes = b""
    audit_annotations: dict[str, str] = {}
    warnings: list[str] = []


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    response: Response


def encode(response: Response, api_version: str = API_VERSION) -> bytes:
    """Return the body of the response."""
    return _encoder.encode(_Answer(api_version, KIND, response))


def allowed(
    uid: str, *, annotations: dict[str, str] | None = None, warnings: list[str] | None = None
) -> Response:
    """Allow the request unchanged."""
    return Response(uid, True, audit_annotations=annotations or {}, warnings=warnings or [])


def patched(uid: str, operations: Sequence[PatchOperation]) -> Response:
    """Allow the request with a patch; without operations, unchanged."""
    if not operations:
        return allowed(uid)
    return Response(uid, True, patch_type="JSONPatch", patch=_encoder.encode(operations))


def denied(
    uid: str,
    message: str,
    *,
    annotations: dict[str, str] | None = None,
    warnings: list[str] | None = None,
) -> Response:
    """Deny the request because of findings."""
    return _rejected(
        uid, HTTPStatus.FORBIDDEN, "Forbidden", message, annotations=annotations, warnings=warnings
    )


def malformed(uid: str, message: str) -> Response:
    """Reject the request because its object is malformed."""
    return _rejected(uid, HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)


def bad_request(uid: str, message: str) -> Response:
    """Reject the request because the review is malformed."""
    return _rejected(uid, HTTPStatus.BAD_REQUEST, "BadRequest", message)


def refused(uid: str, code: HTTPStatus, message: str) -> Response:
    """Reject a request whose review is not read: too large, too late, or one too many."""
    return _rejected(uid, code, _REASONS.get(code, "BadRequest"), message)


def errored(uid: str, message: str) -> Response:
    """Reject the request because of an internal error: the only response with status 500."""
    return _rejected(uid, HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)


def _rejected(
    uid: str,
    code: HTTPStatus,
    reason: str,
    message: str,
    *,
    annotations: dict[str, str] | None = None,
    warnings: list[str] | None = None,
) -> Response:
    return Response(
        uid,
        False,
        status=Status(code.value, reason, message),
        audit_annotations=annotations or {},
        warnings=warnings or [],
    )

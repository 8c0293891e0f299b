"""AdmissionReviews on the wire: the request of an API server, and the response to it.

In a request, a Pod is decoded into its type; other objects remain raw JSON. Source of the wire
format: ``k8s.io/api/admission/v1``, ``types.go``; of the handling in the API server:
``k8s.io/apiserver``, ``pkg/admission/plugin/webhook/request/admissionreview.go`` and
``pkg/admission/plugin/webhook/errors/statuserror.go``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from policies.facts import Operation, Request
from policies.kubernetes.core_v1 import PodObject
from policies.kubernetes.editor import PatchOperation
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.workload import Workload

ObjectT = TypeVar("ObjectT", JSONObject, PodObject)

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

LEADING_BYTES = 1024
"""The bytes at the start of a body that hold the uid and the kind."""

# An API server writes the uid as the first field of the request, because Go writes fields in the
# order of their declaration. The pattern covers every byte before it, so that no other text of a
# review can stand in for the uid.
_LEADING_UID = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"(?:kind|apiVersion)"\s*:\s*"[A-Za-z0-9./]{1,64}"\s*,\s*){2}'
    rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([!#-\[\]-~]{1,128})"'
)


class RefusedError(Exception):
    """A call that is answered without a decision, because its review cannot be read.

    ``uid`` is the uid of the request, if it is known: the response is then a review, and
    ``api_version`` is its version. Without one, it is an HTTP error with the ``status``.
    """

    def __init__(
        self,
        problem: str,
        uid: str = "",
        api_version: str = API_VERSION,
        *,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
    ) -> None:
        super().__init__(problem)
        self.uid = uid
        self.api_version = api_version
        self.status = status


class GroupVersionKind(msgspec.Struct, frozen=True):
    """The type of the object, as the webhook configuration matched it."""

    kind: str
    version: str
    group: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


POD = GroupVersionKind("Pod", "v1")


class UserInfo(msgspec.Struct, frozen=True):
    """The user who sends the request."""

    username: str = ""


class _Request(msgspec.Struct, Generic[ObjectT], frozen=True, rename="camel"):
    """The fields of an AdmissionRequest that decisions depend on."""

    uid: str
    kind: GroupVersionKind
    operation: Operation
    user_info: UserInfo
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    object: ObjectT | None = None
    old_object: ObjectT | None = None

    def to_engine(self, today: date) -> Request:
        """Return the request as the engine takes it."""
        return Request(
            namespace=self.namespace,
            username=self.user_info.username,
            operation=self.operation,
            subresource=self.sub_resource,
            old=self.old_object,
            today=today,
            fail_closed=True,
        )

    @property
    def is_pod(self) -> bool:
        return self.kind == POD


AdmissionRequest = _Request[PodObject] | _Request[JSONObject]


class _Review(msgspec.Struct, Generic[ObjectT], rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request[ObjectT] | None = None


# Of a Pod, decoding skips the fields that no rule reads.
_pod_decoder = msgspec.json.Decoder(_Review[PodObject])
_decoder = msgspec.json.Decoder(_Review[JSONObject])

# As an API server writes it, before the object. Other spellings take longer.
_ABOUT_A_POD = b'"kind":{"group":"","version":"v1","kind":"Pod"}'


def decode(body: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview.

    Raises:
        RefusedError: the body is not an AdmissionReview.
    """
    review: _Review[Any]
    try:
        review = _decode_typed(body) or _decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(body, error) from None
    request = review.request
    if review.kind == KIND and review.api_version == API_VERSION and request and request.uid:
        return request
    raise _foreign(review.api_version, review.kind, request.uid if request else "")


def leading_uid(body: bytes | bytearray) -> str:
    """Return the uid at the start of a review, also if the rest is missing; empty without one."""
    found = _LEADING_UID.match(body, 0, LEADING_BYTES)
    return found[1].decode("ascii") if found else ""


def _decode_typed(body: bytes) -> _Review[PodObject] | None:
    """Return the review of a Pod; None for other kinds, or if the Pod is malformed."""
    if body.find(_ABOUT_A_POD, 0, LEADING_BYTES) < 0:
        return None
    try:
        review = _pod_decoder.decode(body)
    except (ValueError, RecursionError):
        return None
    return review if review.request is not None and review.request.is_pod else None


def object_of(request: AdmissionRequest) -> Workload:
    """Return the request's object.

    Raises:
        RefusedError: the object is missing, or has another kind than the request. Otherwise,
            such objects could bypass the rules.
    """
    expected = request.kind
    if request.object is None:
        raise RefusedError(f"request.kind is {expected}, but request.object is missing")
    obj = Workload(request.object)
    if obj.kind != expected.kind or obj.api_version != expected.api_version:
        sent = f"{obj.api_version} {obj.kind}"
        raise RefusedError(f"request.kind is {expected}, but request.object is {sent:.200}")
    return obj


def _unreadable(body: bytes, error: Exception) -> RefusedError:
    """Return the error for a body that is not JSON, or not a review."""
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError) as broken:
        problem = "nested too deeply" if isinstance(broken, RecursionError) else str(broken)
        return RefusedError(
            f"gpufence cannot read the body as JSON: {problem}",
            leading_uid(body),
        )
    review = value if isinstance(value, dict) else {}
    request = review.get("request")
    uid = request.get("uid") if isinstance(request, dict) else ""
    uid = uid if isinstance(uid, str) else ""
    api_version, kind = review.get("apiVersion"), review.get("kind")
    if (api_version, kind) != (API_VERSION, KIND):
        return _foreign(api_version, kind, uid)
    return RefusedError(f"the body is not a valid {API_VERSION} {KIND}: {error}", uid)


def _foreign(api_version: Any, kind: Any, uid: str) -> RefusedError:
    """Return the error for a review of another kind or version, or one without a request."""
    if kind != KIND or api_version != API_VERSION:
        problem = (
            f"gpufence accepts only {API_VERSION} {KIND}, but received "
            f'apiVersion "{api_version!s:.100}", kind "{kind!s:.100}"; '
            'register gpufence with admissionReviewVersions: ["v1"]'
        )
        # A client of the other version accepts responses only in that version.
        beta = "admission.k8s.io/v1beta1"
        return RefusedError(problem, uid, beta if api_version == beta else API_VERSION)
    return RefusedError(f"the {KIND} has no request with a uid", uid)


class _Status(msgspec.Struct, frozen=True):
    """Why a request was denied (``metav1.Status``)."""

    code: int
    reason: str
    message: str


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An AdmissionResponse. ``patch`` holds JSON, which the wire carries in base64."""

    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str = ""
    patch: bytes = b""
    audit_annotations: dict[str, str] = {}
    warnings: list[str] = []


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    response: Response


_encoder = msgspec.json.Encoder()

# What the API calls them (k8s.io/apimachinery, pkg/apis/meta/v1/types.go).
_REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
}


def encode(response: Response, api_version: str = API_VERSION) -> bytes:
    """Return the body of the response."""
    return _encoder.encode(_Answer(api_version, KIND, response))


def allowed(
    uid: str, *, annotations: dict[str, str] | None = None, warnings: list[str] | None = None
) -> Response:
    """Allow the request unchanged."""
    return Response(uid, True, audit_annotations=annotations or {}, warnings=warnings or [])


def patched(
    uid: str, operations: Sequence[PatchOperation], warnings: list[str] | None = None
) -> Response:
    """Allow the request with a patch; without operations, unchanged."""
    if not operations:
        return allowed(uid)
    patch = _encoder.encode(operations)
    return Response(uid, True, patch_type="JSONPatch", patch=patch, warnings=warnings or [])


def denied(
    uid: str,
    code: HTTPStatus,
    message: str,
    *,
    annotations: dict[str, str] | None = None,
    warnings: list[str] | None = None,
) -> Response:
    """Deny the request; ``code`` says why, and becomes the status that the user gets."""
    return Response(
        uid,
        False,
        status=_Status(code.value, _REASONS[code], message),
        audit_annotations=annotations or {},
        warnings=warnings or [],
    )

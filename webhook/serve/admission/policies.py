"""Reviews of FencePolicies, which decide nothing about Pods."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from policies.document import PolicyError, parse_policy
from webhook.serve.admission import messages, review
from webhook.serve.metrics.replica import Metrics, Result, kind_label

Endpoint = Literal["/validate-policy"]
ENDPOINT: Endpoint = "/validate-policy"


def answer(body: bytes, metrics: Metrics) -> bytes:
    """Deny an invalid policy with what ``gpufence policy validate`` says; return the response.

    An error in here fails the call. API servers ignore that, so that the switch works meanwhile.

    Raises:
        RefusedError: the body is no review.
    """
    request = review.decode(body)
    result: Result = "allowed"
    response = review.allowed(request.uid)
    try:
        parse_policy(request.object)
    except PolicyError as error:
        code, message = HTTPStatus.UNPROCESSABLE_ENTITY, messages.invalid_policy(error.problems)
        result, response = "denied", review.denied(request.uid, code, message)
    kind = kind_label(request.kind.api_version, request.kind.kind)
    metrics.count_response(ENDPOINT, result, request.operation, kind)
    return review.encode(response)

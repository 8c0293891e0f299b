"""Bodies that are no review, or hardly one: a clear answer, and the next review is served."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviewing import JSON, UID, encode, gpu_pod, plain_pod, review, with_value, without
from served import Hook
from webhook.admission.review import RefusedError, decode

GOOD = review(plain_pod())
WITHOUT_UID = with_value(GOOD, "request.uid", "")
BODY = encode(GOOD)


def body_with_raw_annotations(written: bytes, body: JSON = GOOD) -> bytes:
    """Return a body with raw JSON in a field that rules read."""
    marked = encode(with_value(body, "request.object.metadata.annotations", "MARK"))
    return marked.replace(b'"MARK"', written)


PLAIN_ERRORS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the body is empty; POST an AdmissionReview"),
    "blanks": (b" \n ", "gpufence cannot read the body as JSON: "),
    "text": (b"let me in", "gpufence cannot read the body as JSON: "),
    "a form": (b"uid=1&kind=Pod", "gpufence cannot read the body as JSON: "),
    "XML": (b"<AdmissionReview/>", "gpufence cannot read the body as JSON: "),
    "YAML": (b"kind: AdmissionReview\n", "gpufence cannot read the body as JSON: "),
    "protobuf": (
        b"k8s\x00\n\x1e\n\x17admission.k8s.io/v1",
        "gpufence cannot read the body as JSON",
    ),
    "zeroes": (b"\0" * 100, "gpufence cannot read the body as JSON: "),
    "UTF-16": (BODY.decode().encode("utf-16"), "gpufence cannot read the body as JSON: "),
    "cut off before the uid": (BODY[:40], "gpufence cannot read the body as JSON: "),
    "null": (b"null", "accepts only admission.k8s.io/v1 AdmissionReview"),
    "a number": (b"5", "accepts only admission.k8s.io/v1 AdmissionReview"),
    "a string": (b'"AdmissionReview"', "accepts only admission.k8s.io/v1 AdmissionReview"),
    "a list": (b"[" + BODY + b"]", "accepts only admission.k8s.io/v1 AdmissionReview"),
    "an empty mapping": (b"{}", 'received apiVersion "", kind ""'),
    "deeply nested lists": (b"[" * 200_000, "nested too deeply"),
    "deeply nested mappings": (b'{"a":' * 200_000, "nested too deeply"),
    "a Pod": (encode(plain_pod()), 'received apiVersion "v1", kind "Pod"'),
    "no request": (encode(without(GOOD, "request")), "has no request with a uid"),
    "request: null": (encode(with_value(GOOD, "request", None)), "has no request with a uid"),
    "request: a list": (encode(with_value(GOOD, "request", [])), "Expected `object | null`"),
    "no uid": (encode(without(GOOD, "request.uid")), "missing required field `uid`"),
    "uid: empty": (encode(WITHOUT_UID), "has no request with a uid"),
    "uid: null": (encode(with_value(GOOD, "request.uid", None)), "`$.request.uid`"),
    "uid: a number": (encode(with_value(GOOD, "request.uid", 7)), "`$.request.uid`"),
    "an answer": (
        encode(without(GOOD, "request") | {"response": {"uid": "1", "allowed": True}}),
        "has no request with a uid",
    ),
}

REJECTED_REVIEWS: dict[str, tuple[bytes, str]] = {
    "cut off after the uid": (BODY[:-100], "gpufence cannot read the body as JSON: "),
    "one brace too many": (BODY + b"}", "gpufence cannot read the body as JSON: "),
    "two reviews": (BODY + BODY, "gpufence cannot read the body as JSON: "),
    "a byte order mark": (b"\xef\xbb\xbf" + BODY, "gpufence cannot read the body as JSON: "),
    "NaN": (body_with_raw_annotations(b'{"a":NaN}'), "gpufence cannot read the body as JSON: "),
    "infinity": (
        body_with_raw_annotations(b'{"a":-Infinity}'),
        "gpufence cannot read the body as JSON: ",
    ),
    "a comment": (
        body_with_raw_annotations(b"/* none */{}"),
        "gpufence cannot read the body as JSON: ",
    ),
    "single quotes": (
        body_with_raw_annotations(b"{'a':1}"),
        "gpufence cannot read the body as JSON: ",
    ),
    "a line break in a string": (
        body_with_raw_annotations(b'{"a":"\n"}'),
        "gpufence cannot read the body as JSON: ",
    ),
    "a number beyond all bounds": (
        body_with_raw_annotations(b'{"a":1e999}'),
        "gpufence cannot read the body as JSON: ",
    ),
    "a number of 5000 digits": (
        body_with_raw_annotations(b'{"a":' + b"9" * 5000 + b"}"),
        "gpufence cannot read the body as JSON",
    ),
    "invalid UTF-8": (
        body_with_raw_annotations(b'{"a":"\xff"}'),
        "gpufence cannot read the body as JSON: ",
    ),
    "half a surrogate pair": (
        body_with_raw_annotations(b'{"a":"\\ud800"}'),
        "gpufence cannot read the body as JSON: ",
    ),
    "deep nesting in the object": (
        body_with_raw_annotations(b'{"a":' * 100_000),
        "nested too deeply",
    ),
    "apiVersion: v2": (
        encode(GOOD | {"apiVersion": "admission.k8s.io/v2"}),
        'apiVersion "admission.k8s.io/v2", kind "AdmissionReview"; register gpufence with',
    ),
    "no apiVersion": (encode(without(GOOD, "apiVersion")), 'received apiVersion ""'),
    "apiVersion: a list": (encode(GOOD | {"apiVersion": ["v1"]}), "apiVersion"),
    "kind: ConversionReview": (encode(GOOD | {"kind": "ConversionReview"}), "ConversionReview"),
    "kind: a number": (encode(GOOD | {"kind": 3}), 'kind "3"'),
    "no object type": (encode(without(GOOD, "request.kind")), "missing required field `kind`"),
    "object type: text": (encode(with_value(GOOD, "request.kind", "Pod")), "`$.request.kind`"),
    "object type without a kind": (encode(without(GOOD, "request.kind.kind")), "`$.request.kind`"),
    "object type: kind a number": (encode(with_value(GOOD, "request.kind.kind", 1)), "kind"),
    "group: null": (encode(with_value(GOOD, "request.kind.group", None)), "group"),
    "version: a list": (encode(with_value(GOOD, "request.kind.version", ["v1"])), "version"),
    "no operation": (
        encode(without(GOOD, "request.operation")),
        "missing required field `operation`",
    ),
    "operation: invented": (encode(with_value(GOOD, "request.operation", "PATCH")), "PATCH"),
    "operation: a number": (encode(with_value(GOOD, "request.operation", 1)), "operation"),
    "no user": (encode(without(GOOD, "request.userInfo")), "missing required field `userInfo`"),
    "user: null": (encode(with_value(GOOD, "request.userInfo", None)), "userInfo"),
    "username: a list": (encode(with_value(GOOD, "request.userInfo.username", [])), "username"),
    "namespace: a number": (encode(with_value(GOOD, "request.namespace", 5)), "namespace"),
    "name: a mapping": (encode(with_value(GOOD, "request.name", {})), "`$.request.name`"),
    "subResource: null": (encode(with_value(GOOD, "request.subResource", None)), "subResource"),
    "dryRun: text": (encode(with_value(GOOD, "request.dryRun", "no")), "`$.request.dryRun`"),
    "object: text": (encode(with_value(GOOD, "request.object", "Pod")), "`$.request.object`"),
    "object: a list": (encode(with_value(GOOD, "request.object", [])), "`$.request.object`"),
    "object: a number": (encode(with_value(GOOD, "request.object", 1)), "`$.request.object`"),
    "oldObject: a list": (encode(with_value(GOOD, "request.oldObject", [])), "oldObject"),
    "object: null": (
        encode(with_value(GOOD, "request.object", None)),
        "request.kind is v1 Pod, but request.object is missing",
    ),
    "an object of another kind": (
        encode(with_value(GOOD, "request.object.kind", "Service")),
        "request.kind is v1 Pod, but request.object is v1 Service",
    ),
    "an object whose kind is a number": (
        encode(with_value(GOOD, "request.object.kind", 5)),
        "request.kind is v1 Pod, but request.object is v1 5",
    ),
    "an object without a version": (
        encode(without(GOOD, "request.object.apiVersion")),
        "request.kind is v1 Pod, but request.object is None Pod",
    ),
}


async def assert_valid_reviews_are_served(hook: Hook) -> None:
    assert await hook.response("/validate", GOOD) == {"uid": UID, "allowed": True}
    assert "patch" in await hook.response("/mutate", review(gpu_pod()))


@pytest.mark.parametrize("name", PLAIN_ERRORS)
async def test_a_body_without_a_uid_gets_a_plain_text_400(hook: Hook, name: str) -> None:
    body, problem = PLAIN_ERRORS[name]
    for path in ("/mutate", "/validate"):
        status, text = await hook.post(path, body)
        assert status == 400
        assert problem in text
        assert text.endswith("\n")
        await assert_valid_reviews_are_served(hook)


@pytest.mark.parametrize("name", REJECTED_REVIEWS)
async def test_a_bad_review_is_rejected_with_its_uid(hook: Hook, name: str) -> None:
    body, problem = REJECTED_REVIEWS[name]
    for path in ("/mutate", "/validate"):
        status, answer = await hook.post(path, body)
        assert status == 200
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        message = answer["response"]["status"].pop("message")
        assert problem in message
        assert answer["response"] == {
            "uid": UID,
            "allowed": False,
            "status": {"code": 400, "reason": "BadRequest"},
        }
        await assert_valid_reviews_are_served(hook)


async def test_a_v1beta1_review_is_rejected_with_a_v1beta1_response(hook: Hook) -> None:
    old = review(gpu_pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}
    status, answer = await hook.post("/mutate", old)
    assert (status, answer) == (
        200,
        {
            "apiVersion": "admission.k8s.io/v1beta1",
            "kind": "AdmissionReview",
            "response": {
                "uid": UID,
                "allowed": False,
                "status": {
                    "code": 400,
                    "reason": "BadRequest",
                    "message": "gpufence accepts only admission.k8s.io/v1 AdmissionReview, but "
                    'received apiVersion "admission.k8s.io/v1beta1", kind "AdmissionReview"; '
                    'register gpufence with admissionReviewVersions: ["v1"]',
                },
            },
        },
    )


async def test_the_last_duplicate_json_key_wins(hook: Hook) -> None:
    doubled = BODY.replace(b'"uid":', b'"uid":"first","uid":')
    assert await hook.response("/validate", doubled) == {"uid": UID, "allowed": True}
    twice = body_with_raw_annotations(b'{"a":"1","a":"2"}')
    assert await hook.response("/validate", twice) == {"uid": UID, "allowed": True}


async def test_unknown_review_fields_are_ignored(hook: Hook) -> None:
    extended = with_value(GOOD, "request.requestScope", {"cluster": [1]}) | {"status": {}}
    assert await hook.response("/validate", extended) == {"uid": UID, "allowed": True}


@given(st.integers(0, len(BODY) - 1))
def test_decode_reports_the_uid_of_a_truncated_review(length: int) -> None:
    with pytest.raises(RefusedError) as caught:
        decode(BODY[:length])
    assert caught.value.uid == (UID if length >= BODY.index(UID.encode()) + len(UID) + 1 else "")


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["request", "uid", "kind", "apiVersion", "object"]), inner
            )
        ),
    ).map(encode)
)
def test_decode_raises_bad_review_error_for_arbitrary_input(body: bytes) -> None:
    with pytest.raises(RefusedError):
        decode(body)

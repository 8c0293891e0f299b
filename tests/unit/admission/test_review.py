"""Bodies that are no review, or hardly one: a clear answer, and the next review is served."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviewing import UID, encode, gpu_pod, plain_pod, review, with_value, without
from served import Hook
from webhook.serve.admission.review import RefusedError, decode

GOOD = review(plain_pod())
BODY = encode(GOOD)


def body_with_raw_annotations(written: bytes) -> bytes:
    """Return a body with raw JSON in a field that rules read."""
    marked = encode(with_value(GOOD, "request.object.metadata.annotations", "MARK"))
    return marked.replace(b'"MARK"', written)


NOT_JSON = "gpufence cannot read the body as JSON"
NOT_A_REVIEW = "accepts only admission.k8s.io/v1 AdmissionReview"
NO_UID = "has no request with a uid"

PLAIN_ERRORS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the body is empty; POST an AdmissionReview"),
    "blanks": (b" \n ", NOT_JSON),
    "text": (b"let me in", NOT_JSON),
    "a form": (b"uid=1&kind=Pod", NOT_JSON),
    "XML": (b"<AdmissionReview/>", NOT_JSON),
    "YAML": (b"kind: AdmissionReview\n", NOT_JSON),
    "protobuf": (b"k8s\x00\n\x1e\n\x17admission.k8s.io/v1", NOT_JSON),
    "zeroes": (b"\0" * 100, NOT_JSON),
    "UTF-16": (BODY.decode().encode("utf-16"), NOT_JSON),
    "cut off before the uid": (BODY[:40], NOT_JSON),
    "null": (b"null", NOT_A_REVIEW),
    "a number": (b"5", NOT_A_REVIEW),
    "a string": (b'"AdmissionReview"', NOT_A_REVIEW),
    "a list": (b"[" + BODY + b"]", NOT_A_REVIEW),
    "an empty mapping": (b"{}", 'received apiVersion "", kind ""'),
    "deeply nested lists": (b"[" * 200_000, "nested too deeply"),
    "deeply nested mappings": (b'{"a":' * 200_000, "nested too deeply"),
    "a Pod": (encode(plain_pod()), 'received apiVersion "v1", kind "Pod"'),
    "no request": (encode(without(GOOD, "request")), NO_UID),
    "request: null": (encode(with_value(GOOD, "request", None)), NO_UID),
    "request: a list": (encode(with_value(GOOD, "request", [])), "Expected `object | null`"),
    "no uid": (encode(without(GOOD, "request.uid")), "missing required field `uid`"),
    "uid: empty": (encode(with_value(GOOD, "request.uid", "")), NO_UID),
    "uid: null": (encode(with_value(GOOD, "request.uid", None)), "`$.request.uid`"),
    "uid: a number": (encode(with_value(GOOD, "request.uid", 7)), "`$.request.uid`"),
    "an answer": (encode(without(GOOD, "request") | {"response": {"uid": "1"}}), NO_UID),
}

BROKEN_JSON = {
    "cut off after the uid": BODY[:-100],
    "one brace too many": BODY + b"}",
    "two reviews": BODY + BODY,
    "a byte order mark": b"\xef\xbb\xbf" + BODY,
    "NaN": body_with_raw_annotations(b'{"a":NaN}'),
    "infinity": body_with_raw_annotations(b'{"a":-Infinity}'),
    "a comment": body_with_raw_annotations(b"/* none */{}"),
    "single quotes": body_with_raw_annotations(b"{'a':1}"),
    "a line break in a string": body_with_raw_annotations(b'{"a":"\n"}'),
    "a number beyond all bounds": body_with_raw_annotations(b'{"a":1e999}'),
    "a number of 5000 digits": body_with_raw_annotations(b'{"a":' + b"9" * 5000 + b"}"),
    "invalid UTF-8": body_with_raw_annotations(b'{"a":"\xff"}'),
    "half a surrogate pair": body_with_raw_annotations(b'{"a":"\\ud800"}'),
}

REQUIRED = ("kind", "operation", "userInfo")

WRONG_VALUES: list[tuple[str, object, str]] = [
    ("kind", "Pod", "`$.request.kind`"),
    ("kind", {"group": "", "version": "v1"}, "`$.request.kind`"),
    ("kind.kind", 1, "kind"),
    ("kind.group", None, "group"),
    ("kind.version", ["v1"], "version"),
    ("operation", "PATCH", "PATCH"),
    ("operation", 1, "operation"),
    ("userInfo", None, "userInfo"),
    ("userInfo.username", [], "username"),
    ("namespace", 5, "namespace"),
    ("name", {}, "`$.request.name`"),
    ("subResource", None, "subResource"),
    ("dryRun", "no", "`$.request.dryRun`"),
    ("object", "Pod", "`$.request.object`"),
    ("object", [], "`$.request.object`"),
    ("object", 1, "`$.request.object`"),
    ("oldObject", [], "oldObject"),
    ("object", None, "request.kind is v1 Pod, but request.object is missing"),
    ("object.kind", "Service", "request.kind is v1 Pod, but request.object is v1 Service"),
    ("object.kind", 5, "request.kind is v1 Pod, but request.object is v1 5"),
    ("object.apiVersion", None, "request.kind is v1 Pod, but request.object is None Pod"),
]
"""A field of the request, its value, and a part of the message."""

REJECTED_REVIEWS: dict[str, tuple[bytes, str]] = {
    **{name: (body, NOT_JSON) for name, body in BROKEN_JSON.items()},
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
    **{
        f"no {field}": (
            encode(without(GOOD, f"request.{field}")),
            f"missing required field `{field}`",
        )
        for field in REQUIRED
    },
    **{
        f"{field}: {value}": (encode(with_value(GOOD, f"request.{field}", value)), problem)
        for field, value, problem in WRONG_VALUES
    },
}


async def assert_valid_reviews_are_served(hook: Hook) -> None:
    assert await hook.response("/validate", GOOD) == {"uid": UID, "allowed": True}
    assert "patch" in await hook.response("/mutate", review(gpu_pod()))


async def test_a_body_without_a_uid_gets_a_plain_text_400(hook: Hook) -> None:
    wrong = []
    for name, (body, problem) in PLAIN_ERRORS.items():
        for path in ("/mutate", "/validate"):
            status, text = await hook.post(path, body)
            if status != 400 or problem not in text or not text.endswith("\n"):
                wrong.append((name, path, status, text))
            await assert_valid_reviews_are_served(hook)
    assert not wrong


async def test_a_bad_review_is_rejected_with_its_uid(hook: Hook) -> None:
    rejected = {"uid": UID, "allowed": False, "status": {"code": 400, "reason": "BadRequest"}}
    wrong = []
    for name, (body, problem) in REJECTED_REVIEWS.items():
        for path in ("/mutate", "/validate"):
            status, answer = await hook.post(path, body)
            message = answer["response"]["status"].pop("message")
            found = (status, answer["apiVersion"], answer["response"])
            if found != (200, "admission.k8s.io/v1", rejected) or problem not in message:
                wrong.append((name, path, found, message))
            await assert_valid_reviews_are_served(hook)
    assert not wrong


async def test_a_v1beta1_review_is_rejected_with_a_v1beta1_response(hook: Hook) -> None:
    old = review(gpu_pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}
    status, answer = await hook.post("/mutate", old)
    assert (status, answer["apiVersion"]) == (200, "admission.k8s.io/v1beta1")
    assert answer["response"]["status"]["message"] == (
        "gpufence accepts only admission.k8s.io/v1 AdmissionReview, but "
        'received apiVersion "admission.k8s.io/v1beta1", kind "AdmissionReview"; '
        'register gpufence with admissionReviewVersions: ["v1"]'
    )


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

"""Every input that the fuzzers failed on once, tried again; and that their judges can fail."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fuzz.handler import MUTATE, STREAM, VALIDATE, WrongAnswerError, handle, judge
from fuzz.reader import read
from fuzz.trees import mutated
from reviewing import UID, encode, gpu_pod, review, trespassing_pod

FINDINGS = Path(__file__).parent / "findings"


@pytest.mark.parametrize("path", sorted((FINDINGS / "reader").iterdir()), ids=lambda p: p.name)
def test_the_reader_handles_each_earlier_fuzzer_finding(path: Path) -> None:
    read(path.read_bytes())


@pytest.mark.parametrize("sort", [STREAM, MUTATE, VALIDATE])
@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"\xff\x00", encode(review(gpu_pod())), encode(review(trespassing_pod()))],
    ids=["empty", "empty object", "not UTF-8", "a GPU Pod", "a trespasser"],
)
def test_the_handler_answers_every_body(sort: int, body: bytes) -> None:
    handle(bytes([sort]) + body)


@pytest.mark.parametrize(
    "response",
    [
        {"uid": "another", "allowed": True},
        {"uid": UID, "allowed": "yes"},
        {"uid": UID, "allowed": False},
        {"uid": UID, "allowed": False, "status": {"code": 500, "message": "it failed"}},
    ],
    ids=["other uid", "allowed is a string", "denial without status", "internal error"],
)
def test_judge_rejects_a_wrong_review_response(response: object) -> None:
    content = json.dumps({"response": response}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    with pytest.raises(WrongAnswerError):
        judge(head.encode() + b"\r\n\r\n" + content, encode(review(gpu_pod())))


@pytest.mark.parametrize("written", [b"", b"\x15\x03", b"HTTP/1.1 500 Oh\r\n\r\n"])
def test_judge_rejects_an_invalid_http_response(written: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        judge(written, None)


def test_mutated_trees_are_serializable_as_json() -> None:
    for seed in range(300):
        json.dumps(mutated(review(gpu_pod()), random.Random(seed)))

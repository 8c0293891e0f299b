"""Every input that the fuzzers failed on once, tried again; and that their judges can fail."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from each import each
from fuzz.handler import MUTATE, STREAM, VALIDATE, WrongAnswerError, handle, judge
from fuzz.reader import read
from fuzz.trees import mutated
from reviewing import UID, encode, gpu_pod, review, trespassing_pod

FINDINGS = Path(__file__).parent / "findings"


def test_the_reader_handles_each_earlier_fuzzer_finding() -> None:
    each((FINDINGS / "reader").iterdir(), lambda path: read(path.read_bytes()))


def test_the_handler_answers_every_body() -> None:
    reviews = [encode(review(pod)) for pod in (gpu_pod(), trespassing_pod())]
    bodies = (b"", b"{}", b"\xff\x00", *reviews)
    each((bytes([sort]) + body for sort in (STREAM, MUTATE, VALIDATE) for body in bodies), handle)


def test_judge_rejects_a_wrong_review_response() -> None:
    responses: tuple[object, ...] = (
        {"uid": "another", "allowed": True},
        {"uid": UID, "allowed": "yes"},
        {"uid": UID, "allowed": False},
        {"uid": UID, "allowed": False, "status": {"code": 500, "message": "it failed"}},
    )
    json_type = "Content-Type: application/json"
    for response in responses:
        content = json.dumps({"response": response}).encode()
        head = f"HTTP/1.1 200 OK\r\n{json_type}\r\nContent-Length: {len(content)}\r\n\r\n"
        with pytest.raises(WrongAnswerError):
            judge(head.encode() + content, encode(review(gpu_pod())))


def test_judge_rejects_an_invalid_http_response() -> None:
    for written in (b"", b"\x15\x03", b"HTTP/1.1 500 Oh\r\n\r\n"):
        with pytest.raises(WrongAnswerError):
            judge(written, None)


def test_mutated_trees_are_serializable_as_json() -> None:
    for seed in range(300):
        json.dumps(mutated(review(gpu_pod()), random.Random(seed)))

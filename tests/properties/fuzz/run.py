"""Implements `make fuzz`: runs one target under atheris for some minutes.

    python -m fuzz.run handler|reader MINUTES [DIRECTORY]

Seeds come from tests/cases; the corpus stays in DIRECTORY for the next run. An input
that fails is written below DIRECTORY. Move it to tests/properties/fuzz/findings, where every run
tries it again.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import atheris
import yaml

from fuzz.trees import mutated

with atheris.instrument_imports(include=["policies", "webhook"]):
    from fuzz.handler import MUTATE, STREAM, VALIDATE, handle
    from fuzz.reader import read
from cases.loading import cases_of_check, cases_of_mutation, load_all
from policies.registry import RULES
from reviewing import encode, review

_SECONDS_AN_INPUT = 10
"""Longer than this is a hang."""

_LARGEST = 65_536
_DIRECTORY = Path.home() / ".cache" / "gpufence" / "fuzz"


def _handler_seeds() -> Iterator[bytes]:
    for obj in _objects():
        for sort in (MUTATE, VALIDATE):
            yield bytes([sort]) + encode(review(obj))
            yield bytes([sort]) + encode(review(obj, operation="UPDATE", oldObject=obj))
    head = b"POST /validate?timeout=3s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    for rest in (
        b"Content-Length: 2\r\n\r\n{}",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    ):
        yield bytes([STREAM]) + head + rest


def _reader_seeds() -> Iterator[bytes]:
    for obj in _objects():
        yield yaml.safe_dump(obj).encode()
    yield b"apiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Pod}\n- *a\n"
    yield b"---\na: {b: 1}\n--- # c\n<<: {kind: Pod}\napiVersion: v1\n"
    yield b'{"kind": "Pod", "apiVersion": "v1"}\n{"kind": "Pod", "apiVersion": "v1"}\n'


def _objects() -> Iterator[Any]:
    for rule in RULES:
        cases = cases_of_mutation if rule.is_mutation else cases_of_check
        for case in cases(rule.id):
            yield load_all(case.manifest.read_text())[case.document]


def _handler_tree(data: bytes, chance: random.Random) -> bytes:
    return data[:1] + json.dumps(mutated(json.loads(data[1:]), chance)).encode()


def _reader_tree(data: bytes, chance: random.Random) -> bytes:
    changed = mutated(yaml.load(data, yaml.CSafeLoader), chance)
    write: Callable[[Any], str] = chance.choice((json.dumps, yaml.safe_dump))
    return write(changed).encode()


class Target(NamedTuple):
    """What is run, what to begin with, and what is changed where an input is a tree."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    mutated: Callable[[bytes, random.Random], bytes]


_TARGETS = {
    "handler": Target(handle, _handler_seeds, _handler_tree),
    "reader": Target(read, _reader_seeds, _reader_tree),
}


def main(name: str, minutes: float, directory: Path) -> None:
    """Fuzz one target; the process ends with it, with a status that is not 0 where it fails."""
    target = _TARGETS[name]
    inputs, failures = directory / name / "inputs", directory / name / "failures"
    for path in (inputs, failures):
        path.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (inputs / f"seed-{number}").write_bytes(seed)

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        """Mutate the tree where there is one, three times of four, and the bytes otherwise."""
        chance = random.Random(seed)
        if chance.randrange(4):
            try:
                return target.mutated(data, chance)[:largest]
            except (ValueError, TypeError, RecursionError, yaml.YAMLError):
                pass
        changed: bytes = atheris.Mutate(data, largest)
        return changed

    arguments = [
        sys.argv[0],
        str(inputs),
        f"-artifact_prefix={failures}/",
        f"-max_total_time={int(minutes * 60)}",
        f"-timeout={_SECONDS_AN_INPUT}",
        f"-max_len={_LARGEST}",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]
    atheris.Setup(arguments, target.run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in _TARGETS:
        sys.exit("usage: python -m fuzz.run handler|reader MINUTES [DIRECTORY]")
    main(sys.argv[1], float(sys.argv[2]), Path(*sys.argv[3:]) if sys.argv[3:] else _DIRECTORY)

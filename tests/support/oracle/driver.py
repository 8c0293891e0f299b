"""Runs Kubernetes' own code: Pod Security, scheduler predicates, quantities, resource names.

The code runs in one process (main.go in this directory) that answers JSON lines. A question that
the process does not answer in time, or dies of, is an error of that question alone: the next one
finds a new process.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

Level = Literal["baseline", "restricted"]

_CHUNK = 1 << 16
_GRACE = 5.0
_SHOWN = 2000
"""How many characters of a question, or of stderr, an error message shows."""


class OracleError(Exception):
    """The oracle rejected a question (misspelt field, wrong type), hung, or ended."""


class RawJSON(str):
    """JSON text to send as it is written: `RawJSON("1e3")` stays a number in that form."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PodSecurityVerdict:
    """What the Pod Security plugin decides; one reason and one detail for each failed check."""

    allowed: bool
    reasons: tuple[str, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """Whether kube-scheduler may place a Pod on one node, and which predicates agree."""

    feasible: bool
    taints: bool
    affinity: bool
    node_name: bool
    untolerated: dict[str, Any] | None
    """The first taint that keeps the Pod away."""
    affinity_error: str
    """What is wrong with a node selector term; the scheduler ignores it and such a term."""


@dataclass(frozen=True, slots=True)
class QuantityVerdict:
    """How the API server reads one JSON value as a resource quantity."""

    ok: bool
    error: str
    text: str
    """How the API server writes the value; canonical, or what was sent if that looks canonical."""
    value: Fraction | None
    """The exact value, a multiple of 1e-9, after the library's rounding and capping."""
    is_integer: bool
    """By the rule of validation, which rounds up to thousandths first."""


@dataclass(frozen=True, slots=True)
class ResourceNameVerdict:
    """The classification of a resource name by the API's helpers."""

    extended: bool
    native: bool
    device_class: str
    """The class that an implicit name (deviceclass.resource.kubernetes.io/...) names, or ""."""
    overcommit: bool
    """Whether a request may be below the limit or go without one."""
    integer: bool
    """Whether validation wants a whole number."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Whether the API server would create a Pod, had no admission plugin anything to say."""

    valid: bool
    errors: tuple[str, ...]
    pod: dict[str, Any]
    """The Pod with the API server's defaults, as admission sees it."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The objects of a file, as kubectl reads it, up to the first error."""

    objects: tuple[str, ...]
    """Each as kind/name."""
    fault: str


@dataclass(frozen=True, slots=True)
class About:
    """Which Kubernetes it is that answers."""

    modules: dict[str, str]
    pod_security_latest: str
    """The newest version that changes a check, such as "v1.35": what "latest" means."""
    comparison_operators: bool
    """Whether a toleration's Gt and Lt count by default."""


class Oracle:
    """The process that answers, started with the first question and stopped at the end of `with`.

    `deadline` is how many seconds each answer may take, counted from the answer before it.
    """

    def __init__(self, command: Sequence[str | Path], *, deadline: float = 20.0) -> None:
        self._command = command
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()  # the end of its input is the end of the process
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        self._stop()

    def about(self) -> About:
        """Return the versions of the oracle's libraries."""
        (message,) = self._ask("about", [{}])
        return About(
            message["modules"], message["podSecurityLatest"], message["comparisonOperators"]
        )

    def pod_security(
        self,
        pod: Mapping[str, Any],
        *,
        level: Level = "restricted",
        version: str = "latest",
        defaulted: bool = False,
        lenient: bool = False,
    ) -> PodSecurityVerdict:
        """Return the Pod Security plugin's verdict. See `pod_security_each`."""
        (verdict,) = self.pod_security_each(
            [pod], level=level, version=version, defaulted=defaulted, lenient=lenient
        )
        return verdict

    def pod_security_each(
        self,
        pods: Iterable[Mapping[str, Any]],
        *,
        level: Level = "restricted",
        version: str = "latest",
        defaulted: bool = False,
        lenient: bool = False,
    ) -> list[PodSecurityVerdict]:
        """Return the Pod Security plugin's verdict on each Pod (metadata and spec are read).

        `defaulted` applies the API server's defaults first. Unknown fields are an error unless
        `lenient`.
        """
        common = {
            "level": _json(level),
            "version": _json(version),
            "defaulted": _json(defaulted),
            "lenient": _json(lenient),
        }
        answers = self._ask("podSecurity", [{**common, "pod": _json(pod)} for pod in pods])
        return [
            PodSecurityVerdict(told["allowed"], tuple(told["reasons"]), tuple(told["details"]))
            for told in answers
        ]

    def feasible(
        self,
        pod: Mapping[str, Any],
        nodes: Sequence[Mapping[str, Any]],
        *,
        comparison_operators: bool | None = None,
        lenient: bool = False,
    ) -> list[NodeVerdict]:
        """Return for each node whether its taints, labels and name let kube-scheduler place `pod`.

        `comparison_operators` sets the feature gate for a toleration's Gt and Lt; None is the
        default of this Kubernetes.
        """
        question = {
            "pod": _json(pod),
            "nodes": _json(nodes),
            "comparisonOperators": _json(comparison_operators),
            "lenient": _json(lenient),
        }
        (message,) = self._ask("feasible", [question])
        return [
            NodeVerdict(
                feasible=node["feasible"],
                taints=node["taints"],
                affinity=node["affinity"],
                node_name=node["nodeName"],
                untolerated=node["untolerated"],
                affinity_error=node["affinityError"],
            )
            for node in message
        ]

    def tolerates(
        self,
        toleration: Mapping[str, Any],
        taint: Mapping[str, Any],
        *,
        comparison_operators: bool | None = None,
    ) -> bool:
        """Return whether `toleration` tolerates `taint`. See `feasible` for the feature gate."""
        (message,) = self.tolerates_each(
            [(toleration, taint)], comparison_operators=comparison_operators
        )
        return message

    def tolerates_each(
        self,
        pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
        *,
        comparison_operators: bool | None = None,
    ) -> list[bool]:
        """Return for each (toleration, taint) whether the one tolerates the other."""
        gate = _json(comparison_operators)
        return self._ask(
            "tolerates",
            [
                {
                    "toleration": _json(toleration),
                    "taint": _json(taint),
                    "comparisonOperators": gate,
                }
                for toleration, taint in pairs
            ],
        )

    def quantities(self, values: Iterable[object]) -> list[QuantityVerdict]:
        """Return how the API server reads each JSON value (`RawJSON` for its exact text).

        Exponents beyond 4096 in size are rejected: the library itself takes minutes over them.
        """
        (message,) = self._ask("quantity", [{"values": f"[{','.join(map(_json, values))}]"}])
        return [
            QuantityVerdict(
                ok=one["ok"],
                error=one["error"],
                text=one["text"],
                value=Fraction(int(one["nanos"]), 10**9) if one["ok"] else None,
                is_integer=one["isInteger"],
            )
            for one in message
        ]

    def compare(self, a: object, b: object) -> int:
        """Return -1, 0 or 1 as quantity `a` is less than, equal to or greater than `b`."""
        (message,) = self.compare_each([(a, b)])
        return message

    def compare_each(self, pairs: Iterable[tuple[object, object]]) -> list[int]:
        """Return -1, 0 or 1 for each pair of quantities. Values are as in `quantities`."""
        return self._ask("compare", [{"a": _json(a), "b": _json(b)} for a, b in pairs])

    def documents(self, text: str) -> Documents:
        """Return which objects kubectl finds in a file with that text."""
        (message,) = self._ask("documents", [{"text": _json(text)}])
        return Documents(tuple(message["objects"]), message["fault"])

    def resource_names(self, names: Iterable[str]) -> list[ResourceNameVerdict]:
        """Return what the API's helpers say of each name of a container's resource."""
        (message,) = self._ask("resourceName", [{"names": _json(list(names))}])
        return [
            ResourceNameVerdict(
                extended=one["extended"],
                native=one["native"],
                device_class=one["deviceClass"],
                overcommit=one["overcommit"],
                integer=one["integer"],
            )
            for one in message
        ]

    def validate(self, pod: Mapping[str, Any], *, lenient: bool = False) -> Validation:
        """Return whether the API server would create `pod`, and `pod` with its defaults."""
        (message,) = self.validate_each([pod], lenient=lenient)
        return message

    def validate_each(
        self, pods: Iterable[Mapping[str, Any]], *, lenient: bool = False
    ) -> list[Validation]:
        """Return for each Pod whether the API server would create it."""
        common = {"lenient": _json(lenient)}
        answers = self._ask("validate", [{**common, "pod": _json(pod)} for pod in pods])
        return [Validation(told["valid"], tuple(told["errors"]), told["pod"]) for told in answers]

    def _ask(self, op: str, questions: Sequence[Mapping[str, str]]) -> list[Any]:
        """Return the results of several questions of one kind, sent without waiting in between.

        Each question maps the names of its fields to their JSON text.
        """
        first = self._asked
        self._asked += len(questions)
        lines = []
        for number, question in enumerate(questions, first):
            fields = {"op": _json(op), "id": str(number), **question}
            lines.append("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}")
        results = []
        for number, reply in enumerate(self._exchange(lines), first):
            answer = json.loads(reply)
            if "error" in answer:
                raise OracleError(
                    f"{answer['error']}\nThe question was: {_shorten(lines[number - first])}"
                )
            if answer["id"] != number:
                self._stop()
                raise OracleError(f"Question {number} was answered by {_shorten(reply.decode())}")
            results.append(answer["result"])
        return results

    def _exchange(self, lines: Sequence[str]) -> list[bytes]:
        """Send every line and return as many answers."""
        answers: list[bytes] = []
        try:
            self._converse(
                "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"),
                len(lines),
                answers,
            )
        except (_NoAnswerError, BrokenPipeError) as error:
            last_words = self._stop()
            raise OracleError(
                f"The oracle {error if isinstance(error, _NoAnswerError) else 'ended'}. "
                f"It said: {last_words or 'nothing'}\n"
                f"The question was: {_shorten(lines[len(answers)])}"
            ) from error
        except BaseException:
            # Late answers must not meet the next question.
            self._stop()
            raise
        return answers

    def _converse(self, questions: bytes, count: int, answers: list[bytes]) -> None:
        """Send the bytes and append `count` lines to `answers`, reading while writing.

        A pipe holds some 64 KiB: writing everything before reading would block both sides forever.
        """
        stdin, stdout = self._pipes()
        unsent = memoryview(questions)
        received = b""
        until = time.monotonic() + self._deadline
        with selectors.DefaultSelector() as selector:
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            while len(answers) < count:
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise _NoAnswerError(f"gave no answer in {self._deadline:g} s")
                for key, _ in ready:
                    if key.fileobj is stdin:
                        unsent = unsent[os.write(key.fd, unsent[:_CHUNK]) :]
                        if not unsent:
                            selector.unregister(stdin)
                        continue
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        raise _NoAnswerError("ended")
                    *whole, received = (received + chunk).split(b"\n")
                    if whole:
                        answers += whole
                        until = time.monotonic() + self._deadline

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return the process's input and output; start the process if none runs."""
        if self._process is None:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        for pipe in (stdin, stdout):
            os.set_blocking(pipe.fileno(), False)
        return stdin, stdout

    def _stop(self) -> str:
        """Kill the process, if one runs, and return the end of what it wrote to stderr."""
        process, stderr = self._process, self._stderr
        if process is None or stderr is None:
            return ""
        self._process = self._stderr = None
        with process, stderr:
            process.kill()
            process.wait()
            stderr.seek(0)
            return stderr.read().decode(errors="replace")[-_SHOWN:].strip()


class _NoAnswerError(Exception):
    """What the process did instead of answering; reads on after "The oracle"."""


def _json(value: object) -> str:
    # Quantities are read without undoing escapes, and clients written in Go escape no letters.
    return value if isinstance(value, RawJSON) else json.dumps(value, ensure_ascii=False)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"

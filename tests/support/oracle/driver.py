"""Runs Kubernetes' own code: Pod Security, scheduler predicates, quantities, resource names.

The code runs in one process (main.go in this directory) that answers JSON lines. A question that
the process does not answer in time, or dies of, is an error of that question alone: the next one
finds a new process.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from contextlib import suppress
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

Level = Literal["baseline", "restricted"]
T = TypeVar("T")

_GRACE = 5.0
_SHOWN = 2000
"""How many characters of a question, or of stderr, an error message shows."""


class OracleError(Exception):
    """The oracle rejected a question (misspelt field, wrong type), hung, or ended."""


class RawJSON(str):
    """JSON text to send as it is written: `RawJSON("1e3")` stays a number in that form."""

    __slots__ = ()


class Answer(msgspec.Struct, rename="camel"):
    """What the process answers, field by field."""


class PodSecurityVerdict(Answer):
    """What the Pod Security plugin decides; one reason and one detail for each failed check."""

    allowed: bool
    reasons: tuple[str, ...]
    details: tuple[str, ...]


class NodeVerdict(Answer):
    """Whether kube-scheduler may place a Pod on one node, and which predicates agree."""

    feasible: bool
    taints: bool
    affinity: bool
    node_name: bool
    untolerated: dict[str, Any] | None
    """The first taint that keeps the Pod away."""
    affinity_error: str
    """What is wrong with a node selector term; the scheduler ignores it and such a term."""


class QuantityVerdict(Answer):
    """How the API server reads one JSON value as a resource quantity."""

    ok: bool
    error: str
    text: str
    """How the API server writes the value; canonical, or what was sent if that looks canonical."""
    nanos: str
    is_integer: bool
    """By the rule of validation, which rounds up to thousandths first."""

    @property
    def value(self) -> Fraction | None:
        """The exact value, a multiple of 1e-9, after the library's rounding and capping."""
        return Fraction(int(self.nanos), 10**9) if self.ok else None


class ResourceNameVerdict(Answer):
    """The classification of a resource name by the API's helpers."""

    extended: bool
    native: bool
    device_class: str
    """The class that an implicit name (deviceclass.resource.kubernetes.io/...) names, or ""."""
    overcommit: bool
    """Whether a request may be below the limit or go without one."""
    integer: bool
    """Whether validation wants a whole number."""


class Validation(Answer):
    """Whether the API server would create a Pod, had no admission plugin anything to say."""

    valid: bool
    errors: tuple[str, ...]
    pod: dict[str, Any]
    """The Pod with the API server's defaults, as admission sees it."""


class Documents(Answer):
    """The objects of a file, as kubectl reads it, up to the first error."""

    objects: tuple[str, ...]
    """Each as kind/name."""
    fault: str


class About(Answer):
    """Which Kubernetes it is that answers."""

    modules: dict[str, str]
    pod_security_latest: str
    """The newest version that changes a check, such as "v1.35": what "latest" means."""
    comparison_operators: bool
    """Whether a toleration's Gt and Lt count by default."""


class Oracle:
    """The process that answers, started with the first question and stopped at the end of `with`.

    `deadline` is how many seconds a batch of questions may take.
    """

    def __init__(self, command: Sequence[str | Path], *, deadline: float = 60.0) -> None:
        self._command = command
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()  # the end of its input is the end of the process
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        self._stop()

    def about(self) -> About:
        """Return the versions of the oracle's libraries."""
        (about,) = self._ask(About, "about", [{}])
        return about

    def pod_security(self, pod: Mapping[str, Any], **options: Any) -> PodSecurityVerdict:
        """Return the Pod Security plugin's verdict. See `pod_security_each`."""
        (verdict,) = self.pod_security_each([pod], **options)
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
        common = {"level": level, "version": version, "defaulted": defaulted, "lenient": lenient}
        questions = [{**common, "pod": pod} for pod in pods]
        return self._ask(PodSecurityVerdict, "podSecurity", questions)

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
        question = {"pod": pod, "nodes": nodes, "lenient": lenient}
        question["comparisonOperators"] = comparison_operators
        (verdicts,) = self._ask(list[NodeVerdict], "feasible", [question])
        return verdicts

    def tolerates(
        self,
        toleration: Mapping[str, Any],
        taint: Mapping[str, Any],
        *,
        comparison_operators: bool | None = None,
    ) -> bool:
        """Return whether `toleration` tolerates `taint`. See `feasible` for the feature gate."""
        pairs = [(toleration, taint)]
        (answer,) = self.tolerates_each(pairs, comparison_operators=comparison_operators)
        return answer

    def tolerates_each(
        self,
        pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
        *,
        comparison_operators: bool | None = None,
    ) -> list[bool]:
        """Return for each (toleration, taint) whether the one tolerates the other."""
        gate = {"comparisonOperators": comparison_operators}
        questions = [{**gate, "toleration": one, "taint": other} for one, other in pairs]
        return self._ask(bool, "tolerates", questions)

    def quantities(self, values: Iterable[object]) -> list[QuantityVerdict]:
        """Return how the API server reads each JSON value (`RawJSON` for its exact text).

        Exponents beyond 4096 in size are rejected: the library itself takes minutes over them.
        """
        text = RawJSON(f"[{','.join(map(_json, values))}]")
        (verdicts,) = self._ask(list[QuantityVerdict], "quantity", [{"values": text}])
        return verdicts

    def compare(self, a: object, b: object) -> int:
        """Return -1, 0 or 1 as quantity `a` is less than, equal to or greater than `b`."""
        (order,) = self.compare_each([(a, b)])
        return order

    def compare_each(self, pairs: Iterable[tuple[object, object]]) -> list[int]:
        """Return -1, 0 or 1 for each pair of quantities. Values are as in `quantities`."""
        return self._ask(int, "compare", [{"a": a, "b": b} for a, b in pairs])

    def documents(self, text: str) -> Documents:
        """Return which objects kubectl finds in a file with that text."""
        (documents,) = self._ask(Documents, "documents", [{"text": text}])
        return documents

    def resource_names(self, names: Iterable[str]) -> list[ResourceNameVerdict]:
        """Return what the API's helpers say of each name of a container's resource."""
        questions = [{"names": list(names)}]
        (verdicts,) = self._ask(list[ResourceNameVerdict], "resourceName", questions)
        return verdicts

    def validate(self, pod: Mapping[str, Any], *, lenient: bool = False) -> Validation:
        """Return whether the API server would create `pod`, and `pod` with its defaults."""
        (validation,) = self.validate_each([pod], lenient=lenient)
        return validation

    def validate_each(
        self, pods: Iterable[Mapping[str, Any]], *, lenient: bool = False
    ) -> list[Validation]:
        """Return for each Pod whether the API server would create it."""
        return self._ask(Validation, "validate", [{"lenient": lenient, "pod": p} for p in pods])

    def _ask(self, kind: type[T], op: str, questions: Sequence[Mapping[str, Any]]) -> list[T]:
        """Return the results of several questions of one kind, sent without waiting in between."""
        first = self._asked
        self._asked += len(questions)
        lines = []
        for number, question in enumerate(questions, first):
            fields = {"op": op, "id": number, **question}
            lines.append(
                "{" + ",".join(f'"{name}":{_json(each)}' for name, each in fields.items()) + "}"
            )
        results = []
        for number, (line, reply) in enumerate(
            zip(lines, self._exchange(lines), strict=True), first
        ):
            answer = json.loads(reply)
            if "error" in answer:
                raise OracleError(f"{answer['error']}\nThe question was: {_shorten(line)}")
            if answer["id"] != number:
                self._stop()
                raise OracleError(f"Question {number} was answered by {_shorten(reply.decode())}")
            results.append(msgspec.convert(answer["result"], kind))
        return results

    def _exchange(self, lines: Sequence[str]) -> list[bytes]:
        """Send every line and return as many answers."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        # A pipe holds some 64 KiB: writing everything before reading would block both sides.
        text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
        writer = threading.Thread(target=_write, args=(process.stdin, text), daemon=True)
        hung = threading.Event()

        def end() -> None:
            hung.set()
            process.kill()

        limit = threading.Timer(self._deadline, end)
        answers: list[bytes] = []
        writer.start()
        limit.start()
        try:
            while len(answers) < len(lines) and (answer := process.stdout.readline()):
                answers.append(answer)
        except BaseException:
            # Late answers must not meet the next question.
            self._stop()
            raise
        finally:
            limit.cancel()
        if len(answers) < len(lines):
            last_words = self._stop()
            what = f"gave no answer in {self._deadline:g} s" if hung.is_set() else "ended"
            raise OracleError(
                f"The oracle {what}. It said: {last_words or 'nothing'}\n"
                f"The question was: {_shorten(lines[len(answers)])}"
            )
        writer.join()
        return answers

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process; start it if none runs."""
        if self._process is None:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=self._stderr
            )
        return self._process

    def _stop(self) -> str:
        """Kill the process, if one runs, and return the end of what it wrote to stderr."""
        process, stderr = self._process, self._stderr
        if process is None or stderr is None:
            return ""
        self._process = self._stderr = None
        process.kill()
        process.wait()
        with stderr, suppress(BrokenPipeError), process:
            stderr.seek(0)
            return stderr.read().decode(errors="replace")[-_SHOWN:].strip()
        return ""


def _write(pipe: IO[bytes], text: bytes) -> None:
    # The process may end before it has read everything, or be stopped.
    with suppress(OSError, ValueError):
        pipe.write(text)
        pipe.flush()


def _json(value: object) -> str:
    # Quantities are read without undoing escapes, and clients written in Go escape no letters.
    return value if isinstance(value, RawJSON) else json.dumps(value, ensure_ascii=False)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"

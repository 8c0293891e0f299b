"""Runs Kubernetes' own code: Pod Security, scheduler predicates, quantities, resource names.

The code runs in one process (main.go in this directory), which answers each line of JSON with one.
"""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Level = Literal["baseline", "restricted"]
T = TypeVar("T")

_SHOWN = 2000
"""How many characters of a question an error message shows."""


class OracleError(Exception):
    """The oracle rejected a question (misspelt field, wrong type), or ended."""


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
    affinity_error: str
    """What is wrong with a node selector term; the scheduler ignores it and such a term."""


class QuantityVerdict(Answer):
    """How the API server reads one JSON value as a resource quantity."""

    ok: bool
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
    device_class: str
    """The class that an implicit name (deviceclass.resource.kubernetes.io/...) names, or ""."""


class Validation(Answer):
    """Whether the API server would create a Pod, had no admission plugin anything to say."""

    valid: bool
    errors: tuple[str, ...]
    pod: dict[str, Any]
    """The Pod with the API server's defaults, as admission sees it."""


class Documents(Answer):
    """The objects of a file, as kubectl reads it, up to the first error."""

    objects: tuple[dict[str, Any], ...]
    fault: str


class AllocatableVerdict(Answer):
    """Whether kube-scheduler's allocator finds devices for a claim on one node."""

    allocatable: bool
    failure: str
    """What the selector of the DeviceClass fails with."""


class About(Answer):
    """Which Kubernetes it is that answers."""

    modules: dict[str, str]
    pod_security_latest: str
    """The newest version that changes a check, such as "v1.35": what "latest" means."""


class Oracle:
    """The process that answers; it ends with the `with` block."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogatepass",
        )
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def about(self) -> About:
        """Return the versions of the oracle's libraries."""
        return self._ask(About, "about")

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
        return [self._ask(PodSecurityVerdict, "podSecurity", pod=pod, **common) for pod in pods]

    def feasible(
        self,
        pod: Mapping[str, Any],
        nodes: Sequence[Mapping[str, Any]],
        *,
        comparison_operators: bool | None = None,
    ) -> list[NodeVerdict]:
        """Return for each node whether its taints, labels and name let kube-scheduler place `pod`.

        `comparison_operators` sets the feature gate for a toleration's Gt and Lt; None is the
        default of this Kubernetes.
        """
        gate = {"comparisonOperators": comparison_operators}
        return self._ask(list[NodeVerdict], "feasible", pod=pod, nodes=nodes, **gate)

    def allocatable(
        self,
        nodes: Sequence[Mapping[str, Any]],
        slices: Sequence[Mapping[str, Any]],
        device_class: Mapping[str, Any],
        count: int,
    ) -> list[AllocatableVerdict]:
        """Return for each node whether a claim can get so many devices of the class there."""
        return self._ask(
            list[AllocatableVerdict],
            "allocatable",
            nodes=nodes,
            slices=slices,
            deviceClass=device_class,
            count=count,
        )

    def tolerates_each(
        self,
        pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
        *,
        comparison_operators: bool | None = None,
    ) -> list[bool]:
        """Return for each (toleration, taint) whether the one tolerates the other.

        See `feasible` for the feature gate.
        """
        gate = {"comparisonOperators": comparison_operators}
        return [
            self._ask(bool, "tolerates", toleration=toleration, taint=taint, **gate)
            for toleration, taint in pairs
        ]

    def quantities(self, values: Iterable[object]) -> list[QuantityVerdict]:
        """Return how the API server reads each JSON value.

        Exponents beyond 4096 in size are rejected: the library itself takes minutes over them.
        """
        return self._ask(list[QuantityVerdict], "quantity", values=list(values))

    def compare_each(self, pairs: Iterable[tuple[object, object]]) -> list[int]:
        """Return -1, 0 or 1 for each pair of quantities. Values are as in `quantities`."""
        return [self._ask(int, "compare", a=a, b=b) for a, b in pairs]

    def documents(self, text: str) -> Documents:
        """Return which objects kubectl finds in a file with that text."""
        return self._ask(Documents, "documents", text=text)

    def resource_names(self, names: Iterable[str]) -> list[ResourceNameVerdict]:
        """Return what the API's helpers say of each name of a container's resource."""
        return self._ask(list[ResourceNameVerdict], "resourceName", names=list(names))

    def validate_each(self, pods: Iterable[Mapping[str, Any]]) -> list[Validation]:
        """Return for each Pod whether the API server would create it, and the Pod with defaults."""
        return [self._ask(Validation, "validate", pod=pod) for pod in pods]

    def _ask(self, kind: type[T], operation: str, **question: Any) -> T:
        """Send one question, and return the result.

        Raises:
            OracleError: the question is invalid, or the process has ended.
        """
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        self._asked += 1
        fields = {"op": operation, "id": self._asked, **question}
        # Quantities are read without undoing escapes, and clients written in Go escape no letters.
        line = json.dumps(fields, ensure_ascii=False)
        pipe.write(f"{line}\n")
        pipe.flush()
        answer = json.loads(answers.readline() or '{"error": "The oracle has ended."}')
        if "error" in answer:
            raise OracleError(f"{answer['error']}\nThe question was: {line[:_SHOWN]}")
        assert answer["id"] == self._asked, "the answer to an earlier question, which was not read"
        return msgspec.convert(answer["result"], kind)

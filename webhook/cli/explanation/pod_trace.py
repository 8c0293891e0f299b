"""The mutations of an object, one by one, as the engine itself applies them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies.context import Context
from policies.engine import decide
from policies.evaluator import mutate_pod
from policies.facts import Facts, Request
from policies.finding import Action
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.workload import Workload
from policies.policy import ExceptionEntry, Policy
from policies.registry import MUTATIONS, RULES, Mutation
from webhook.cli.manifests.evaluate import Complete, Result, evaluate
from webhook.documents.objects import Manifest


@dataclass(frozen=True, slots=True)
class Step:
    """One mutation: the object before and after it."""

    mutation: Mutation
    before: JSONObject
    after: JSONObject

    @property
    def adds(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Template:
    """One pod template: the Pod as it is written, and as the cluster creates it."""

    written: Pod
    made: Pod
    context: Context

    @property
    def is_mutated_later(self) -> bool:
        """Whether the object has no fields for the mutations, so that only its Pods get them."""
        return not self.written.template.editable and bool(self.context.device_requests)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one object, and the reasons for it.

    ``templates`` is empty and ``facts`` is ``None`` if there is nothing to explain: the object is
    broken, is not an object of the API, or has no pod template.
    """

    result: Result
    request: Request | None = None
    facts: Facts | None = None
    actions: Mapping[str, Action] = field(default_factory=dict)
    """Each rule's action in the namespace of the object."""
    templates: tuple[Template, ...] = ()
    steps: tuple[Step, ...] = ()
    exceptions: tuple[ExceptionEntry, ...] = ()
    """The policy's exceptions that cover this object, expired or not."""


def explanations(
    manifests: Sequence[Manifest],
    policy: Policy,
    request: Request,
    complete: Complete,
) -> Iterator[Explanation]:
    """Yield an explanation of each object, in order; the arguments are those of ``evaluate``."""
    seen: list[tuple[Request, Facts]] = []

    def kept(writing: Request, facts: Facts, obj: JSONObject) -> Facts:
        seen.append((writing, complete(writing, facts, obj)))
        return seen[-1][1]

    for result in evaluate(manifests, policy, request, kept):
        # The generator judges one object at a time: the last facts belong to this object.
        if result.decision is not None and result.decision.has_template:
            yield _explanation(result, policy, *seen[-1])
        else:
            yield Explanation(result)


def _explanation(result: Result, policy: Policy, request: Request, facts: Facts) -> Explanation:
    obj = result.manifest.value or {}
    stages = [obj, *_stages(obj, policy, request, facts)]
    written, made = (Workload(stage).pods() for stage in (stages[0], stages[-1]))
    found = tuple(
        Template(pod, created, Context.of(pod, policy, request, facts))
        for pod, created in zip(written, made, strict=True)
    )
    for template in found:
        if template.is_mutated_later:
            mutate_pod(template.made, template.context)
    steps = tuple(map(Step, MUTATIONS, stages, stages[1:]))
    exceptions = tuple(
        entry
        for entry in policy.exceptions
        if any(
            entry.covers(rule.id, request.namespace, result.kind, result.name.removesuffix("*"))
            for rule in RULES
        )
    )
    actions = policy.actions_in(request.namespace)
    return Explanation(result, request, facts, actions, found, steps, exceptions)


def _stages(
    obj: JSONObject, policy: Policy, request: Request, facts: Facts
) -> Iterator[JSONObject]:
    """Yield the object as the first mutation leaves it, as the first two do, and so on.

    The engine decides each time, with the later mutations off in the policy, so the explanation
    cannot differ from the decision.
    """
    actions = policy.actions_in(request.namespace)
    for count in range(1, len(MUTATIONS) + 1):
        off: dict[str, Action] = {rule.id: "off" for rule in RULES}
        off |= {mutation.id: actions[mutation.id] for mutation in MUTATIONS[:count]}
        shortened = replace(policy, actions=off, overrides={}, exceptions=())
        yield decide(obj, shortened, request, facts).mutated

"""What happens to the Pods of an object, step by step, each step as the engine itself takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies.advisory import additions
from policies.context import Context
from policies.engine import decide
from policies.facts import Facts, Request
from policies.finding import Action
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod, pod_of
from policies.kubernetes.templates import templates
from policies.policy import ExceptionEntry, Policy
from policies.registry import MUTATIONS, RULES, Mutation
from webhook.cli.manifests.evaluate import Complete, Result, evaluate
from webhook.cli.manifests.objects import Manifest


@dataclass(frozen=True, slots=True)
class Step:
    """What one mutation adds to one pod template, each as ``path: value``."""

    mutation: Mutation
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """One pod template: the Pod as it is written, the steps, and the Pod that comes of them."""

    written: Pod
    context: Context
    steps: tuple[Step, ...]
    made: Pod


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one object, and how it comes about.

    ``templates`` is empty, and ``facts`` is ``None``, where there is nothing to explain: no object
    of the API, a broken one, or one that makes no Pods.
    """

    result: Result
    request: Request | None = None
    facts: Facts | None = None
    actions: Mapping[str, Action] = field(default_factory=dict)
    """Each rule's action in the namespace of the object."""
    templates: tuple[Template, ...] = ()
    exceptions: tuple[ExceptionEntry, ...] = ()
    """The policy's exceptions that are about this object, expired or not."""


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
        # Objects are judged one by one, as they are asked for: the last facts are this one's.
        if result.decision is not None and result.decision.has_template:
            yield _explanation(result, policy, *seen[-1])
        else:
            yield Explanation(result)


def _explanation(result: Result, policy: Policy, request: Request, facts: Facts) -> Explanation:
    obj = result.manifest.value or {}
    stages = [obj, *_stages(obj, policy, request, facts)]
    pods = [[pod_of(t) for t in templates(stage)] for stage in stages]
    found = tuple(
        Template(
            each[0],
            Context.of(each[0], policy, request, facts),
            tuple(
                Step(mutation, tuple(additions(before, after)))
                for mutation, before, after in zip(MUTATIONS, each, each[1:], strict=False)
            ),
            each[-1],
        )
        for each in zip(*pods, strict=True)
    )
    exceptions = tuple(
        entry
        for entry in policy.exceptions
        if any(
            entry.covers(rule.id, request.namespace, result.kind, result.name.removesuffix("*"))
            for rule in RULES
        )
    )
    actions = policy.actions_in(request.namespace)
    return Explanation(result, request, facts, actions, found, exceptions)


def _stages(
    obj: JSONObject, policy: Policy, request: Request, facts: Facts
) -> Iterator[JSONObject]:
    """Yield the object as the first mutation leaves it, as the first two do, and so on.

    The engine decides each time, by the same policy with the later mutations off: what it would do
    and what is explained cannot differ.
    """
    actions = policy.actions_in(request.namespace)
    for count in range(1, len(MUTATIONS) + 1):
        off: dict[str, Action] = {rule.id: "off" for rule in RULES}
        off |= {mutation.id: actions[mutation.id] for mutation in MUTATIONS[:count]}
        shortened = replace(policy, actions=off, overrides={}, exceptions=())
        yield decide(obj, shortened, request, facts).mutated

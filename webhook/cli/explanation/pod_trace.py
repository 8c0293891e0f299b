"""What happens to the Pods of an object, step by step, each step as the engine itself takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from policies.engine import additions, decide, pod_of
from policies.facts import Facts, JSONObject
from policies.finding import Action
from policies.kubernetes.pod import Pod
from policies.kubernetes.templates import templates
from policies.policy import ExceptionEntry, Policy
from policies.registry import RULES, SETTERS, Setter
from webhook.cli.manifests.evaluate import Result, evaluate
from webhook.cli.manifests.objects import Manifest


@dataclass(frozen=True, slots=True)
class Step:
    """What one setter adds to one pod template: ``path: value``, nothing where nothing is added."""

    setter: Setter
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """One pod template: the Pod as it is written, the steps, and the Pod that comes of them."""

    written: Pod
    steps: tuple[Step, ...]
    made: Pod


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one object, and how it comes about.

    ``templates`` is empty, and ``facts`` is ``None``, where there is nothing to explain: no object
    of the API, a broken one, or one that makes no Pods.
    """

    result: Result
    facts: Facts | None = None
    actions: Mapping[str, Action] = field(default_factory=dict)
    """Each rule's action in the namespace of the object."""
    templates: tuple[Template, ...] = ()
    exceptions: tuple[ExceptionEntry, ...] = ()
    """The policy's exceptions that are about this object, expired or not."""


def explanations(
    manifests: Sequence[Manifest],
    policy: Policy,
    namespace: str,
    today: date,
    complete: Callable[[Facts, JSONObject], Facts],
) -> Iterator[Explanation]:
    """Yield an explanation of each object, in order; the arguments are those of ``evaluate``."""
    seen: list[Facts] = []

    def kept(facts: Facts, obj: JSONObject) -> Facts:
        seen.append(complete(facts, obj))
        return seen[-1]

    for result in evaluate(manifests, policy, namespace, today, kept):
        # Objects are judged one by one, as they are asked for: the last facts are this one's.
        if result.decision is not None and result.decision.has_template:
            yield _explanation(result, policy, seen[-1])
        else:
            yield Explanation(result)


def _explanation(result: Result, policy: Policy, facts: Facts) -> Explanation:
    obj = result.manifest.value or {}
    stages = [obj, *_stages(obj, policy, facts)]
    pods = [[pod_of(t, policy, facts) for t in templates(stage)] for stage in stages]
    found = tuple(
        Template(
            each[0],
            tuple(
                Step(setter, tuple(additions(before, after)))
                for setter, before, after in zip(SETTERS, each, each[1:], strict=False)
            ),
            each[-1],
        )
        for each in zip(*pods, strict=True)
    )
    exceptions = tuple(
        entry
        for entry in policy.exceptions
        if any(
            entry.covers(rule.id, facts.namespace, result.kind, result.name.removesuffix("*"))
            for rule in RULES
        )
    )
    return Explanation(result, facts, policy.actions_in(facts.namespace), found, exceptions)


def _stages(obj: JSONObject, policy: Policy, facts: Facts) -> Iterator[JSONObject]:
    """Yield the object as the first setter leaves it, as the first two do, and so on.

    The engine decides each time, by the same policy with the later setters off: what it would do
    and what is explained cannot differ.
    """
    actions = policy.actions_in(facts.namespace)
    for count in range(1, len(SETTERS) + 1):
        off: dict[str, Action] = {rule.id: "off" for rule in RULES}
        off |= {setter.id: actions[setter.id] for setter in SETTERS[:count]}
        shortened = replace(policy, actions=off, overrides={}, exceptions=())
        yield decide(obj, shortened, facts).mutated

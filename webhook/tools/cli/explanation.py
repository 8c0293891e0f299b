"""The explanation of a decision: requests, mutations, scheduling and checks.

Of the nodes, only labels, taints and allocatable devices count. CPU, memory, and devices that other
Pods hold do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from msgspec import structs

from policies.candidates import describe
from policies.context import Context
from policies.decision import Decision
from policies.engine import mutate_pod
from policies.exemptions import excepted_mutations
from policies.kubernetes.field_types import NameSet, camel_case
from policies.kubernetes.nodes import Node
from policies.kubernetes.pod import RESOURCE_SIDES, Pod
from policies.kubernetes.quantity import parse_quantity
from policies.kubernetes.readers import READERS
from policies.kubernetes.scheduling import (
    FENCING_EFFECTS,
    Alternative,
    Taint,
    matches_node,
    tolerates,
)
from policies.policy import Actions, EffectiveHardening, Hardening, Policy, Pool
from policies.pool_nodes import nodes_of_pools
from policies.registry import CHECKS, MUTATIONS, RULES
from policies.requests import Scope, device_peaks, ignored_annotations
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report.content import reasons
from webhook.tools.cli.report.output import BOLD, DIM, PLAIN, Terminal
from webhook.tools.cli.report.text import finding_text, heading, unjudged_text
from webhook.tools.cli.yaml_writer import difference
from webhook.tools.custom_resources import workload
from webhook.tools.custom_resources.composed import ComposedTemplate
from webhook.wording import counted, some

_MOST_NAMES = 8
_ZERO = "its quantity is 0"
_NEGATIVE = "the API server rejects quantities below 0"
_SIGNS = {"In": "in", "NotIn": "not in", "Exists": "exists", "DoesNotExist": "does not exist"}


def report(terminal: Terminal, results: Iterable[Result], policy: Policy) -> Iterator[str]:
    """Yield the explanation of every object, with an empty line between two objects."""
    for number, result in enumerate(results):
        if number:
            yield "\n"
        yield heading(terminal, result)
        decision = result.decision
        unjudged = unjudged_text(terminal, decision)
        yield unjudged
        if decision.has_template:
            yield from _object(terminal, result, policy)
        elif result.error is None and not unjudged:
            yield terminal.line("gpufence finds no pod template in it.", style=DIM, indent=2)


@dataclass(frozen=True, slots=True)
class _Template:
    """One pod template: the Pod as it is written, and as the cluster creates it."""

    written: Pod
    created: Pod
    context: Context

    @property
    def is_mutated_later(self) -> bool:
        """Whether the object has no fields for the mutations, so that only its Pods get them."""
        template = self.written.template
        is_editable = not isinstance(template, ComposedTemplate) or template.editable
        return not is_editable and bool(self.context.device_requests)

    @property
    def placed(self) -> Pod:
        """The Pod that decides on nodes: some controllers read what is written."""
        return self.written if self.written.kind in READERS else self.created


class _Detail(str):
    """A sentence below another one."""

    __slots__ = ()


def _section(terminal: Terminal, title: str, sentences: Iterable[str]) -> Iterator[str]:
    yield terminal.line(title, 2, BOLD)
    for sentence in sentences:
        yield terminal.line(sentence, 6 if isinstance(sentence, _Detail) else 4)


def _object(terminal: Terminal, result: Result, policy: Policy) -> Iterator[str]:
    decision = result.decision
    templates = list(_templates(result, decision, policy))

    def of(title: str, pod: Pod) -> str:
        """Return the title of a section; of several Pods, it names the Pod."""
        return f"{title} (Pod at {pod.at('spec')})" if len(templates) > 1 else title

    for template in templates:
        what = "is a GPU Pod" if template.context.device_requests else "is not a GPU Pod"
        why = _why(template.written, template.context)
        yield from _section(terminal, of(f"Why it {what}", template.written), why)
    if decision.exemption:
        yield from _section(terminal, "Checks", [f"Exempt from every rule: {decision.exemption}."])
        return
    for template in templates:
        if template.context.device_requests:
            title = of("Hardening", template.written)
            yield from _section(terminal, title, _hardening(template.context))
    actions = policy.actions_in(result.request.namespace, result.facts.namespace_labels)
    yield from _mutations(terminal, decision, templates, actions)
    for template in templates:
        fit = _scheduling(template.placed, template.context)
        yield from _section(terminal, of("Scheduling", template.created), fit)
        if result.facts.nodes is None and template.context.requested_pools:
            hint = "To see which nodes fit, add --nodes or --cluster."
            yield terminal.line(hint, style=DIM, indent=4)
    yield from _checks(terminal, result, actions)
    for exception in _exceptions(result, policy):
        yield terminal.line(exception, indent=4)


def _templates(result: Result, decision: Decision, policy: Policy) -> Iterator[_Template]:
    read = workload(decision.original, policy)
    scope = Scope(policy, result.request, result.facts)
    excepted = excepted_mutations([each.id for each in MUTATIONS], read, scope)
    written, created = read.pods(), workload(decision.mutated, policy).pods()
    for pod, made in zip(written, created, strict=True):
        context = Context.of(pod, policy, result.request, result.facts)
        context = structs.replace(context, excepted=excepted)
        template = _Template(pod, made, context)
        if template.is_mutated_later:
            mutate_pod(made, context)
        yield template


def _why(pod: Pod, context: Context) -> Iterator[str]:
    """Yield why the Pod is a GPU Pod, or why it is not one although it may look like one."""
    containers = {
        (container.kind, container.position): container.name for container in pod.containers
    }
    for request in context.device_requests:
        holder = request.container if request.resource else None
        who = f"Container {containers[holder]}" if holder else "The Pod"
        sure = "" if request.certain else " (devices of other pools satisfy the request as well)"
        offers = "offers" if len(request.pools) == 1 else "offer"
        yield (
            f"{who} requests {request.what}, which {request.pool_names} {offers}{sure} "
            f"(at {request.path})."
        )
        for exclusion in request.excluded:
            yield _Detail(f"Excluded: {describe(exclusion)}.")
    if not context.device_requests:
        pools = ", ".join(pool.name for pool in context.policy.pools)
        yield f"It requests no device of a pool. Pools of the policy: {pools}."
    for path, name, why in _not_requests(pod, context):
        yield f"{name} does not request a device of a pool: {why} (at {path})."
    for name, annotation in ignored_annotations(pod, context.policy):
        yield (
            f"{name} does not request a device of a pool: schedulerName is "
            f"{pod.spec.scheduler_name or 'default-scheduler'}, and {annotation.scheduler_name} "
            f"reads the annotation (at {pod.at(f'metadata.annotations[{name}]')})."
        )
    for named in context.unresolved_claims(pod):
        yield (
            f"Claim {named.claim_name} is unknown and does not count as a request (at "
            f"{named.path}). Pass its manifest as well, or use --cluster."
        )


def _not_requests(pod: Pod, context: Context) -> Iterator[tuple[str, str, str]]:
    """Yield path, resource and reason of what looks like a device request but is not one."""
    requests = {request.path for request in context.device_requests}
    for container in pod.containers:
        if container.kind == "ephemeralContainers":
            continue
        seen = set()
        for side in RESOURCE_SIDES:
            for name, quantity in container.resources(side).items():
                path = pod.at(f"{container.field}.resources.{side}[{name}]")
                if "/" not in name or name in seen or path in requests:
                    seen.add(name)
                elif (count := parse_quantity(quantity)) <= 0:
                    seen.add(name)
                    yield path, f"{name}: {quantity}", _NEGATIVE if count else _ZERO
                elif not context.policy.pools_of_resource(name):
                    seen.add(name)
                    yield path, f"{name}: {quantity}", "it is not a resource of any pool"


def _hardening(context: Context) -> Iterator[str]:
    """Yield the security settings of the Pod, by the place in the policy that sets them."""
    policy, namespace = context.policy, context.request.namespace
    labels = context.facts.namespace_labels
    places = {"the default": EffectiveHardening().settings, "the policy": policy.hardening}
    places |= {
        f"pool {each.name}": each.hardening or Hardening() for each in context.requested_pools
    }
    for index, each in enumerate(policy.overrides):
        selector = each.namespace_selector
        if namespace in NameSet(each.namespaces) or (
            selector and selector.selects(namespace, labels) is not False
        ):
            places[f"overrides[{index}]"] = each.hardening or Hardening()
    found: dict[str, list[str]] = {}
    for name, value in asdict(context.hardening.settings).items():
        if value is not None:
            # Of several pools, or by unknown labels, the last place is not always the one.
            of_name = [place for place, own in places.items() if getattr(own, name) == value]
            shown = "false" if value is False else value
            found.setdefault(of_name[-1], []).append(f"{camel_case(name)}: {shown}")
    for place in places:
        if place in found:
            yield f"{', '.join(found[place])} ({place})"


def _mutations(
    terminal: Terminal, decision: Decision, templates: Sequence[_Template], actions: Actions
) -> Iterator[str]:
    yield terminal.line("Mutations", 2, BOLD)
    done: set[str] = set()
    silent: list[str] = []
    for mutation in MUTATIONS:
        if mutation.id not in decision.mutations:
            action = actions[mutation.id]
            silent.append(mutation.id if action == "enforce" else f"{mutation.id} (on {action})")
            continue
        yield terminal.row((mutation.id, BOLD), (mutation.summary, PLAIN), indent=4)
        yield terminal.line(f"Why: {reasons(mutation)[0]}", style=DIM, indent=6)
        before, done = decision.mutated_by(done), done | {mutation.id}
        yield terminal.changed(difference(before, decision.mutated_by(done)), 6)
    later = [template.written for template in templates if template.is_mutated_later]
    for pod in later:
        yield terminal.line(
            f"The webhook mutates the Pods at {pod.at('spec')} when they are created: a {pod.kind} "
            "cannot hold all mutations.",
            indent=4,
        )
    if silent and not later:
        yield terminal.line(f"No changes by {', '.join(silent)}.", indent=4)


def _scheduling(pod: Pod, context: Context) -> Iterator[str]:
    """Yield what the Pod needs of a node, and which nodes of each pool fit it."""
    policy, facts, pools = context.policy, context.facts, context.requested_pools
    needed = device_peaks(pod, policy)
    if pools:
        selections = [_in_words(alternative) for alternative in pod.selection()]
        if not selections:
            yield "No node can match its node selection."
        elif all(selections):  # An empty one matches every node.
            yield f"It selects nodes with {', or with '.join(selections)}."
        if counts := [f"{count} {resource}" for resource, count in needed.items()]:
            yield f"It needs a node with {' and '.join(counts)}."
    for pool in pools or policy.pools:
        if facts.nodes is not None:
            members = facts.nodes.nodes(nodes_of_pools(policy, facts.nodes).of(pool))
            yield from _placement(pod, pool, needed, members)
        elif reason := _obstacle(pod, pool):
            yield f"It does not fit the nodes of pool {pool.name}: {reason}."
        else:
            yield (
                f"It fits the nodes of pool {pool.name}: its node selection matches them, and it "
                "tolerates their taints."
            )


def _placement(
    pod: Pod, pool: Pool, needed: Mapping[str, int], members: Iterable[Node]
) -> Iterator[str]:
    """Yield which of the pool's nodes fit the Pod, and the others with the reason."""
    fitting: list[str] = []
    excluded: dict[str, list[str]] = {}
    nodes = sorted(members, key=lambda node: node.name)
    for node in nodes:
        reason = next(_obstacles(pod, node, needed), None)
        (fitting if reason is None else excluded.setdefault(reason, [])).append(node.name)
    if not nodes:
        yield f"No known node belongs to pool {pool.name}."
        return
    all_of_pool = f"{counted(len(nodes), 'node')} of pool {pool.name}"
    if fitting:
        yield f"It fits {len(fitting)} of {all_of_pool}: {some(fitting, most=_MOST_NAMES)}."
    else:
        yield f"It fits none of {all_of_pool}."
    for reason, names in excluded.items():
        yield _Detail(f"Excluded: {some(names, most=_MOST_NAMES)}, because {reason}.")


def _obstacle(pod: Pod, pool: Pool) -> str:
    """Return why the Pod does not fit the nodes that the policy describes; empty if it does.

    Source: the predicates of kube-scheduler (``policies.kubernetes.scheduling``).
    """
    if not any(map(pool.can_meet, pod.selection())):
        return "its node selection excludes them"
    taint = _untolerated(pod, pool.taints)
    return "" if taint is None else f"it does not tolerate their taint {taint}"


def _obstacles(pod: Pod, node: Node, needed: Mapping[str, int]) -> Iterator[str]:
    bound = pod.spec.node_name
    if bound and bound != node.name:
        yield f"nodeName binds the Pod to {bound}"
    if not matches_node(pod.spec, node.name, node.labels):
        yield "the Pod's node selection excludes it"
    if (taint := _untolerated(pod, node.taints)) is not None:
        yield f"the Pod does not tolerate its taint {taint}"
    for resource, count in needed.items():
        if (offered := node.offers.get(resource, 0)) < count:
            yield f"it has {offered} {resource}, and the Pod needs {count}"


def _untolerated(pod: Pod, taints: tuple[Taint, ...]) -> Taint | None:
    tolerations = pod.spec.tolerations or []
    for taint in taints:
        if taint.effect in FENCING_EFFECTS and not any(tolerates(t, taint) for t in tolerations):
            return replace(taint, value=taint.value or None)
    return None


def _in_words(alternative: Alternative) -> str:
    parts = [f"{key}={value}" for key, value in alternative.labels.items()]
    for requirement in (*alternative.expressions, *alternative.fields):
        key, values = requirement.key, requirement.values or []
        operator = requirement.operator or ""
        text = ", ".join(values)
        if operator == "In" and len(values) == 1:
            parts.append(f"{key}={text}")
        else:
            parts.append(f"{key} {_SIGNS.get(operator, operator)} {text}".rstrip())
    return " and ".join(dict.fromkeys(parts))


def _checks(terminal: Terminal, result: Result, actions: Actions) -> Iterator[str]:
    decision = result.decision
    yield terminal.line("Checks", 2, BOLD)
    for finding in decision.findings:
        yield finding_text(terminal, result, finding, 4)
    for finding in decision.excepted:
        yield terminal.line(f"excepted  {finding.rule}  {finding.message}", style=DIM, indent=4)
    failed = {finding.rule for finding in (*decision.findings, *decision.excepted)}
    quiet: dict[str, list[str]] = {}
    for check in CHECKS:
        if actions[check.id] == "off":
            quiet.setdefault("Off in the policy", []).append(check.id)
        elif check.pods == "gpu" and not decision.pools:
            quiet.setdefault("For GPU Pods only", []).append(check.id)
        elif check.id not in failed:
            quiet.setdefault("No findings", []).append(check.id)
    for what, ids in quiet.items():
        yield terminal.line(f"{what}: {', '.join(ids)}.", indent=4)


def _exceptions(result: Result, policy: Policy) -> Iterator[str]:
    """Yield the policy's exceptions that cover this object, expired or not."""
    namespace, name = result.request.namespace, result.name.removesuffix("*")
    for entry in policy.exceptions:
        of_object = namespace, result.kind, name, result.facts.namespace_labels
        if any(entry.covers(rule.id, *of_object) for rule in RULES):
            rules = ", ".join(sorted(entry.rules)) or "every rule that checks"
            if entry.controls:
                rules += f" ({', '.join([*sorted(entry.controls), *entry.values.patterns])})"
            state = "expired on" if entry.has_expired(result.request.today) else "expires on"
            until = f", {state} {entry.expires}" if entry.expires else ""
            yield f"Exception in the policy for {rules}{until}: {entry.reason}"

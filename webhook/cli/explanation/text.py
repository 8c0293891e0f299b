"""The explanation of an object: requests, mutations, scheduling and checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from policies.candidates import describe
from policies.context import Context
from policies.facts import Request
from policies.kubernetes.pod import RESOURCE_SIDES, Pod
from policies.kubernetes.quantity import parse_quantity
from policies.policy import ExceptionEntry, Policy
from policies.registry import CHECKS, Mutation
from policies.requests import device_peaks, ignored_annotations
from webhook.cli.explanation.placement import PoolPlacement, obstacle, placement, selection
from webhook.cli.explanation.pod_trace import Explanation, Step
from webhook.cli.report.difference import difference
from webhook.cli.report.text import (
    Line,
    finding_lines,
    heading,
    line,
    marked_line,
    unjudged_lines,
)
from webhook.wording import counted

_MOST_NAMES = 8
_ZERO = "its quantity is 0"
_NEGATIVE = "the API server rejects quantities below 0"


def report(explained: Iterable[Explanation]) -> Iterator[Line]:
    """Yield the lines of every explanation, with an empty line between two objects."""
    for number, explanation in enumerate(explained):
        if number:
            yield Line()
        yield from heading(explanation.result)
        decision = explanation.result.decision
        unjudged = unjudged_lines(decision) if decision else []
        yield from unjudged
        if explanation.request is None and explanation.result.error is None and not unjudged:
            yield line("gpufence finds no pod template in it.", role="aside", indent=2)
        elif explanation.request is not None:
            yield from _object(explanation, explanation.request)


def _object(explanation: Explanation, request: Request) -> Iterator[Line]:
    decision = explanation.result.decision
    exemption = decision.exemption if decision else ""
    several = len(explanation.templates) > 1
    for template in explanation.templates:
        where = f" (Pod at {template.written.at('spec')})" if several else ""
        yield from _why(template.written, where, template.context)
    if exemption:
        yield _title("Checks")
        yield line(f"Exempt from every rule: {exemption}.", indent=4)
        return
    yield from _mutations(explanation)
    for template in explanation.templates:
        where = f" (Pod at {template.made.at('spec')})" if several else ""
        yield from _scheduling(template.made, where, template.context)
    yield _title("Checks")
    yield from _checks(explanation)
    for entry in explanation.exceptions:
        yield line(_exception(entry, request), indent=4)


def _why(pod: Pod, where: str, context: Context) -> Iterator[Line]:
    """Yield why the Pod is a GPU Pod, or why it is not one although it may look like one."""
    if context.device_requests:
        yield _title(f"Why it is a GPU Pod{where}")
        containers = {
            (container.kind, container.position): container.name for container in pod.containers()
        }
        for request in context.device_requests:
            holder = request.container if request.resource else None
            who = f"Container {containers[holder]}" if holder else "The Pod"
            sure = (
                "" if request.certain else " (devices of other pools satisfy the request as well)"
            )
            offers = "offers" if len(request.pools) == 1 else "offer"
            yield line(
                f"{who} requests {request.what}, which {request.pool_names} {offers}{sure} "
                f"(at {request.path}).",
                indent=4,
            )
            for exclusion in request.excluded:
                yield line(f"Excluded: {describe(exclusion)}.", indent=6)
    else:
        yield _title(f"Why it is not a GPU Pod{where}")
        pools = ", ".join(pool.name for pool in context.policy.pools)
        yield line(f"It requests no device of a pool. Pools of the policy: {pools}.", indent=4)
    for path, name, why in _not_requests(pod, context):
        yield line(f"{name} does not request a device of a pool: {why} (at {path}).", indent=4)
    for name, annotation in ignored_annotations(pod, context.policy):
        yield line(
            f"{name} does not request a device of a pool: schedulerName is "
            f"{pod.spec.scheduler_name or 'default-scheduler'}, and {annotation.scheduler_name} "
            f"reads the annotation (at {pod.at(f'metadata.annotations[{name}]')}).",
            indent=4,
        )
    for named in context.unresolved_claims(pod):
        yield line(
            f"Claim {named.entry.claim} is unknown and does not count as a request (at "
            f"{named.path}). Pass its manifest as well, or use --cluster.",
            indent=4,
        )


def _not_requests(pod: Pod, context: Context) -> Iterator[tuple[str, str, str]]:
    """Yield path, resource and reason of what looks like a device request but is not one."""
    requests = {request.path for request in context.device_requests}
    for container in pod.containers():
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


def _mutations(explanation: Explanation) -> Iterator[Line]:
    yield _title("Mutations")
    for step in explanation.steps:
        if step.adds:
            yield Line(((step.mutation.id, "rule"), (f"  {step.mutation.summary}", "")), indent=4)
            yield line(f"Why: {_reason(step.mutation)}", role="aside", indent=6)
            for marked in difference(step.before, step.after):
                yield marked_line(marked, indent=6)
    later = [template for template in explanation.templates if template.is_mutated_later]
    for template in later:
        yield line(
            f"The webhook mutates the Pods at {template.written.at('spec')} when they are created: "
            f"a {template.written.kind} cannot hold all mutations.",
            indent=4,
        )
    silent = [_silent(step, explanation) for step in explanation.steps if not step.adds]
    if silent and not later:
        yield line(f"No additions by {', '.join(silent)}.", indent=4)


def _silent(step: Step, explanation: Explanation) -> str:
    action = explanation.actions[step.mutation.id]
    return step.mutation.id if action == "enforce" else f"{step.mutation.id} (on {action})"


def _reason(mutation: Mutation) -> str:
    """Return the first paragraph under the heading Why of the mutation's page, on one line."""
    why = re.search(r"^## Why\n\n(.*?)\n\n", mutation.page, re.MULTILINE | re.DOTALL)
    return " ".join(why[1].split()) if why else mutation.summary


def _scheduling(pod: Pod, where: str, context: Context) -> Iterator[Line]:
    yield _title(f"Scheduling{where}")
    policy, facts, pools = context.policy, context.facts, context.requested_pools
    if pools:
        yield from _asks(pod, policy)
    for pool in pools or policy.pools:
        reason = obstacle(pod, pool)
        if facts.nodes is not None:
            yield from _nodes(placement(pod, pool, policy, facts))
        elif reason:
            yield line(f"It does not fit the nodes of pool {pool.name}: {reason}.", indent=4)
        else:
            yield line(
                f"It fits the nodes of pool {pool.name}: its node selection matches them, and it "
                "tolerates their taints.",
                indent=4,
            )
    if facts.nodes is None and pools:
        yield line("To see which nodes fit, add --nodes or --cluster.", role="aside", indent=4)


def _asks(pod: Pod, policy: Policy) -> Iterator[Line]:
    """Yield what the Pod needs of a node."""
    ways = selection(pod)
    if not ways:
        yield line("No node can match its node selection.", indent=4)
    elif all(ways):
        yield line(f"It selects nodes with {', or with '.join(ways)}.", indent=4)
    counts = [f"{count} {resource}" for resource, count in device_peaks(pod, policy).items()]
    if counts:
        yield line(f"It needs a node with {' and '.join(counts)}.", indent=4)


def _nodes(placement: PoolPlacement) -> Iterator[Line]:
    others = sum(map(len, placement.others.values()))
    total = others + len(placement.fitting)
    pool = f"pool {placement.pool.name}"
    if not total:
        yield line(f"No known node belongs to {pool}.", indent=4)
        return
    nodes = counted(total, "node")
    if placement.fitting:
        count, fitting = len(placement.fitting), _names(placement.fitting)
        yield line(f"It fits {count} of {nodes} of {pool}: {fitting}.", indent=4)
    else:
        yield line(f"It fits none of {nodes} of {pool}.", indent=4)
    for reason, names in placement.others.items():
        yield line(f"Excluded: {_names(names)}, because {reason}.", indent=6)


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMES
    listed = ", ".join(names[:_MOST_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def _checks(explanation: Explanation) -> Iterator[Line]:
    result, decision = explanation.result, explanation.result.decision
    if decision is None:
        return
    for finding in decision.findings:
        yield from finding_lines(result, finding, indent=4)
    for finding in decision.excepted:
        yield line(f"excepted  {finding.rule}  {finding.message}", role="aside", indent=4)
    failed = {finding.rule for finding in (*decision.findings, *decision.excepted)}
    is_gpu_pod = bool(decision.pools)
    quiet: dict[str, list[str]] = {}
    for check in CHECKS:
        if explanation.actions[check.id] == "off":
            quiet.setdefault("Off in the policy", []).append(check.id)
        elif check.pods == "gpu" and not is_gpu_pod:
            quiet.setdefault("For GPU Pods only", []).append(check.id)
        elif check.id not in failed:
            quiet.setdefault("No findings", []).append(check.id)
    for what, ids in quiet.items():
        yield line(f"{what}: {', '.join(ids)}.", indent=4)


def _exception(entry: ExceptionEntry, request: Request) -> str:
    rules = ", ".join(sorted(entry.rules)) or "every rule"
    state = "expired on" if entry.has_expired(request.today) else "expires on"
    until = f", {state} {entry.expires}" if entry.expires else ""
    return f"Exception in the policy for {rules}{until}: {entry.reason}"


def _title(words: str) -> Line:
    return Line(((words, "object"),), indent=2)

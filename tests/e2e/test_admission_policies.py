"""The second line alone on a real API server: it rejects nothing that the engine allows."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from bench.expressions import dense
from cases.loading import Case, compiled
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.versions import CLAIMS
from deciding import required, term
from each import each
from in_tree import (
    SETUP_USER,
    InTree,
    Outcome,
    create_runtime_class,
    in_tree,
    in_trees,
    kept_cases,
    of_pools,
    path_of,
)
from laws.profile import live_law as law
from policies.api_servers import IN_TREE_RULES
from policies.decision import Decision
from policies.engine import decide, validate
from policies.facts import Facts, Request
from policies.finding import ACTIONS, Finding
from policies.kubernetes.core_v1 import PodSpec, Toleration
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.nodes import Node, NodeIndex
from policies.policy import ExceptionEntry, Override, Policy
from policies.shipped import preset_text
from policies.vocabulary import (
    LACK,
    SELECTION,
    TOLERATION,
    class_advice,
    request_or,
    selects,
    tolerates,
    visible_devices_variables,
    wildcard_remediation,
)
from policies.wording import capitalized
from specs import JSON, default_spec, policy_of
from strategies import AMD, MEMORY, NODE_TYPE, PRESENT, ZONE, facts, policies
from valid_strategies import WORKLOADS, pod, valid_specs, workload
from webhook.controller.text.objects import Registration, admission_policies
from webhook.tools.cli.policy_diff.pods import classes, objects_of

RUNTIME_CLASS = re.compile(r'"runtimeClassName": "([^"]+)"')
NUMBERS = itertools.count()
OS = {"kubernetes.io/os": "linux"}
CPU_NODES = [Node("cpu-1", {"node-type": "cpu", ZONE: "a", **OS}), Node("cpu-2", {ZONE: "b", **OS})]
GPU_NODES = [
    Node("gpu-1", {PRESENT: "true", NODE_TYPE: "gpu", AMD: "true", MEMORY: "80", ZONE: "b", **OS}),
    Node("gpu-2", {PRESENT: "true", MEMORY: "40", **OS}),
]
NODES = {
    "unknown": None,
    "GPU and CPU nodes": NodeIndex([*CPU_NODES, *GPU_NODES]),
    "the pools scaled to zero": NodeIndex(CPU_NODES),
    "only GPU nodes": NodeIndex(GPU_NODES),
}
TODAY = datetime.now(UTC).date()
TOO_LONG = "gpufence found more than fits here; run gpufence check on the manifest"


GENERATED = policies()
ANY_VALUE = GENERATED["any value of a label"]
BY_ACTION = {
    action: replace(
        default,
        rules={**default.rules, "pool-trespass": action},
        overrides=(Override(namespaces=("other",), rules={"pool-trespass": "enforce"}),),
    )
    for default in [policy_of(default_spec())]
    for action in ACTIONS
}
EXPIRING = {
    TODAY + timedelta(days=days): replace(
        GENERATED["one taint"],
        exceptions=(
            ExceptionEntry(
                rules=frozenset({"pool-trespass"}),
                namespaces=NameSet(["law", "def*"]),
                names=NameSet(["pod-*"]),
                reason="moves soon",
                expires=TODAY + timedelta(days=days),
            ),
        ),
    )
    for days in (0, 1)
}
"""By the day of expiry."""
LABELS = {
    "default": {},
    "law-dev": {"tier": "dev"},
    "law-test": {"tier": "test", "team": "a"},
    "law-team": {"tier": "te", "team": "b"},
    "other-law": {"team": "a"},
}
"""Namespaces with their labels."""
HELP = {"help": 'Contact "#gpus", or see {it}'}
KAI = policy_of(yaml.safe_load(preset_text("kai"))["spec"] | HELP)

Lines = dict[Policy, InTree]


@contextmanager
def registered(cluster: ControlPlane, tried: Iterable[Policy]) -> Iterator[Lines]:
    """Register the line of each policy inside the block."""
    # Policies that differ for replicas only have the same objects.
    objects = {each: str(admission_policies(each, Registration())) for each in dict.fromkeys(tried)}
    distinct = {text: policy for policy, text in objects.items()}
    with in_trees(cluster, distinct.values()) as lines:
        line_of = dict(zip(distinct, lines, strict=True))
        yield {policy: line_of[text] for policy, text in objects.items()}


@pytest.fixture(scope="module")
def lines(control_plane: ControlPlane) -> Iterator[Lines]:
    tried = (KAI, *GENERATED.values(), *BY_ACTION.values(), *EXPIRING.values())
    for name, labels in LABELS.items():
        control_plane.create_namespace(name, labels)
    with registered(control_plane, tried) as lines:
        yield lines


@pytest.mark.slow("creates the object of every case")
def test_admission_policies_deny_no_case_that_the_engine_allows(
    control_plane: ControlPlane,
) -> None:
    cases = kept_cases(control_plane)
    prepare(control_plane, cases)
    policy_of_case = {case: compiled(case.read()[1]) for case in cases}
    tally: Counter[str] = Counter()
    alone: list[str] = []
    sent: dict[str, Outcome] = {}
    with registered(control_plane, policy_of_case.values()) as lines:
        for case, policy in policy_of_case.items():
            outcome, wrong = judge(lines[policy], case, sent)
            tally[outcome] += 1
            alone += wrong
    print(f"\n{len({*lines.values()})} lines, {len(cases)} cases: {dict(tally)}")
    assert not alone, "\n".join(alone)


def prepare(cluster: ControlPlane, cases: Iterable[Case]) -> None:
    """Create the namespaces and RuntimeClasses of cases: without, the API server rejects a Pod."""
    namespaces: set[str] = set()
    classes: set[str] = set()
    for case in cases:
        obj, _, request, _ = case.read()
        namespaces.add(request.namespace)
        classes.update(RUNTIME_CLASS.findall(json.dumps(obj)))
    for name in namespaces:
        cluster.create_namespace(name)
    for name in classes:
        create_runtime_class(cluster, name)


def judge(line: InTree, case: Case, sent: dict[str, Outcome]) -> tuple[str, list[str]]:
    """Return what the API server makes of a case, and what is wrong with that.

    ``sent`` has the outcomes of other cases: some differ in what only the engine knows.
    """
    obj, document, request, known = case.read()
    request = msgspec.structs.replace(request, today=TODAY if request.today else None)
    what = f"{line.name} {obj} {request}"
    if what not in sent:
        if request.operation == "UPDATE" and request.old is not None:
            sent[what] = update(line, obj, request)
        else:
            sent[what] = line.create(obj, request.namespace, request.username)
    return compare(compiled(document), str(case), obj, sent[what], request, [known])


def update(line: InTree, obj: JSON, request: Request) -> Outcome:
    """Create the old object as a user whom the policy exempts, and replace it."""
    old = request.old
    assert isinstance(old, dict)
    # One that has a finalizer, or a node, stays: no two have the same name.
    name = f"{obj['metadata']['name']}-{next(NUMBERS)}"
    renamed = {**obj, "metadata": {**obj["metadata"], "name": name}}
    before = {
        **old,
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {**old["metadata"], "name": name},
    }
    setup, path = line.api(SETUP_USER), path_of(obj, request.namespace)
    try:
        setup.request("POST", str(path), line.labeled(before))
    except ApiError as error:
        return Outcome("invalid", str(error))
    try:
        return line.update(renamed, request.namespace, request.username, request.subresource)
    finally:
        # The garbage collector may have been there first, where the Pod has a node.
        with suppress(ApiError):
            setup.request("DELETE", f"{path}/{name}?gracePeriodSeconds=0")


def compare(
    policy: Policy,
    name: str,
    obj: JSON,
    outcome: Outcome,
    request: Request,
    facts: Iterable[Facts],
) -> tuple[str, list[str]]:
    """Return what both lines make of an object; the second is what the law forbids.

    The in-tree policies know no facts, so what they deny the engine must deny with any of them.
    """
    if outcome.verdict == "invalid":
        return "invalid", []
    facts = list(facts)
    verdicts = [enforced(obj, policy, request, known) for known in facts]
    if outcome.verdict == "denied":
        said = outcome.message.partition("denied request: ")[2]
        # No webhook has mutated the Pod.
        raw = [enforcing(validate(obj, policy, request, known)) for known in facts]
        return "denied by both", [
            f"{name}: {outcome.message}" for found in raw if not is_text_of(said, found, policy)
        ]
    if not verdicts[0]:
        return "allowed by both", []
    reasons = {why_only_the_engine(finding, obj, request, policy) for finding in verdicts[0]}
    wrong = [f"{name}: {verdicts[0]}"] if UNEXPLAINED in reasons else []
    return f"engine only: {min(reasons)}", wrong


def is_text_of(said: str, findings: Iterable[Finding], policy: Policy) -> bool:
    """Return whether a denial has nothing but the text of findings, and that of at least one.

    The advice may be less specific, and no note tells of an exception that has expired.
    """
    general = [
        request_or(what, [pool]) for what in (TOLERATION, SELECTION) for pool in policy.pools
    ]
    # A finding names all pools. A denial names those about which the object alone decides, with a
    # sentence for each pool of a selection.
    general += [capitalized(what) for what in (TOLERATION, SELECTION)]
    of_one_pool = [
        f"{said([pool])}, but {LACK}" for said in (tolerates, selects) for pool in policy.pools
    ]
    general += [wildcard_remediation([pool]) for pool in policy.pools]
    general += ["Name the taints that the Pod needs to tolerate"]
    variables = visible_devices_variables(policy)
    general += [f"Remove {what}" for what in ("the volume", *variables)]
    general += [
        class_advice(what, (), pool.name)
        for what in (TOLERATION, SELECTION)
        for pool in policy.pools
    ]
    end = f". {policy.help}" if policy.help else ""
    left = reasons = said.removesuffix(end)
    for finding in findings:
        own = finding.detail.partition("; its exception (")[0]
        # Advice may start with other advice.
        advices = sorted((finding.remediation, *general), key=len, reverse=True)
        for detail, advice in itertools.product((own, *of_one_pool), advices):
            # A denial names the first of equal tolerations for each of them.
            left = left.replace(f"{finding.rule}: {finding.path}: {detail}. {advice}", "")
    is_text = reasons == TOO_LONG or (left != reasons and not left.strip(". "))
    return is_text and said.endswith(end)


def enforced(obj: JSON, policy: Policy, request: Request, known: Facts) -> list[Finding]:
    """Return the findings for which the engine denies the object."""
    return enforcing(decide(obj, policy, request, known))


def enforcing(decision: Decision) -> list[Finding]:
    return [finding for finding in decision.findings if finding.action == "enforce"]


UNEXPLAINED = "unexplained"


def why_only_the_engine(finding: Finding, obj: JSON, request: Request, policy: Policy) -> str:
    """Return the kind of a finding that the in-tree policies do not have, as the page lists it."""
    if finding.rule not in IN_TREE_RULES:
        return f"the rule {finding.rule}"
    spec = spec_of(obj)
    text = json.dumps(spec)
    selects = spec.get("nodeSelector") or "requiredDuringScheduling" in text
    numeric = '"Gt"' in text or '"Lt"' in text
    explained = {
        "the cluster's nodes": "every node that the Pod selects" in finding.detail
        or finding.path.endswith("nodeName"),
        "a device by annotation, mount or the version of an image": any(
            part in finding.path for part in ("annotations", "volumeMounts")
        )
        or "sets CUDA_VERSION" in finding.detail,
        "a variable whose value is not a plain list, or that counts with none": (
            re.search(r'"[^"]*(\$\(|,none)[^"]*", which', finding.detail) is not None
            or "with NVIDIA_VISIBLE_DEVICES none" in finding.detail
        ),
        "what may be a request for a device": "resourceClaims" in spec
        or any("/" in key for key in re.findall(r'"([^"]+)": "?[0-9]', text)),
        "a toleration beside another placement": "tolerations" in finding.path
        and (bool(selects) or "nodeName" in spec),
        "what may be a request by annotation": any(
            each.scheduler_name == spec.get("schedulerName") and f'"{name}"' in json.dumps(obj)
            for each in policy.pools_of_annotations
            for name in each.annotations
        ),
        "a term that compares numbers or several names": "nodeSelectorTerms" in finding.path
        and (numeric or text.count("metadata.name") > 1),
        "a pool that leaves out nodes": "the node selection" in finding.detail
        and any(pool.without and pool.name in finding.detail for pool in policy.pools),
        "another label that a term names twice": "nodeSelector" in finding.path
        and names_another_label_twice(spec, policy),
        "a run time, a queue, or a share of CPU and memory": any(
            part in finding.detail for part in ("activeDeadlineSeconds", "Kueue", "for each device")
        )
        or "seconds are more than" in finding.detail,
        "an update of an object with an earlier finding": request.operation == "UPDATE",
    }
    return next((why for why, holds in explained.items() if holds), UNEXPLAINED)


def names_another_label_twice(spec: JSON, policy: Policy) -> bool:
    """Return whether a term, with the node selector, names a label twice that is no pool's."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    keys_of_pools = {key for pool in policy.pools for key in pool.selector}
    for alternative in required.get("nodeSelectorTerms") or ():
        expressions = [each["key"] for each in alternative.get("matchExpressions") or ()]
        keys = Counter([*(spec.get("nodeSelector") or ()), *expressions])
        if any(count > 1 for key, count in keys.items() if key not in keys_of_pools):
            return True
    return False


def spec_of(obj: JSON) -> JSON:
    """Return the Pod's spec in a Pod or a core workload."""
    match obj["kind"]:
        case "Pod":
            template = obj
        case "PodTemplate":
            template = obj["template"]
        case "CronJob":
            template = obj["spec"]["jobTemplate"]["spec"]["template"]
        case _:
            template = obj["spec"]["template"]
    spec: JSON = template["spec"]
    return spec


@pytest.mark.slow("sends each generated object to every policy")
def test_law_admission_policies_deny_no_object_that_the_engine_allows(lines: Lines) -> None:
    tallies: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @law
    @given(
        spec=valid_specs(),
        known=facts(),
        kind=st.sampled_from(["Pod", "Pod", *WORKLOADS]),
        namespace=st.sampled_from([*LABELS]),
    )
    def holds(spec: JSON, known: Facts, kind: str, namespace: str) -> None:
        obj = pod(spec) if kind == "Pod" else workload(kind, "made", spec)
        known = msgspec.structs.replace(known, namespace_labels=LABELS[namespace])
        variants = [msgspec.structs.replace(known, nodes=nodes) for nodes in NODES.values()]
        request = Request(namespace)
        for name, policy in GENERATED.items():
            outcome = lines[policy].create(obj, namespace)
            verdict, wrong = compare(policy, json.dumps(obj), obj, outcome, request, variants)
            tallies[name][verdict] += 1
            assert not wrong, wrong

    holds()
    for name, tally in tallies.items():
        print(f"\n{name}: {dict(tally)}")
        assert tally["denied by both"] > 0
        assert tally["allowed by both"] > 0


def test_the_name_and_the_labels_of_a_namespace_decide(lines: Lines) -> None:
    tried = (GENERATED["labels of namespaces"], BY_ACTION["warn"])
    objects = (TRESPASSER, pod(LEAK))
    for policy, obj, (namespace, labels) in itertools.product(tried, objects, LABELS.items()):
        denied = enforced(obj, policy, Request(namespace), Facts(namespace_labels=labels))
        outcome = lines[policy].create(obj, namespace)
        assert (outcome.verdict == "denied") is bool(denied), (namespace, outcome.message)


BY_TYPE = {"nodeSelector": {"node.kubernetes.io/instance-type": "p5"}}
ADDED = {"adding": PodSpec(tolerations=[Toleration(key="nvidia.com/gpu", operator="Exists")])}


def spec_with(**fields: Any) -> JSON:
    return {"containers": [{"name": "main", "image": "app"}], **fields}


@pytest.mark.slow("updates each generated Pod in every policy")
def test_law_admission_policies_deny_no_update_that_the_engine_allows(lines: Lines) -> None:
    """A Pod that waits at a gate can get tolerations, and a narrower node selection."""
    tally: Counter[str] = Counter()
    path, setup = "/api/v1/namespaces/default/pods", lines[KAI].api(SETUP_USER)
    tolerating = TRESPASSER["spec"]["tolerations"]

    @law
    @example(spec_with(tolerations=tolerating), frozenset({"tolerations"}), Facts())
    @example(spec_with(tolerations=tolerating, **BY_TYPE), frozenset({"tolerations"}), Facts())
    @example(spec_with(tolerations=tolerating, **BY_TYPE), frozenset(BY_TYPE), Facts())
    @example(
        spec_with(tolerations=tolerating, runtimeClassName="adding"),
        frozenset({"tolerations"}),
        Facts(),
    )
    @given(
        spec=valid_specs(),
        added=st.frozensets(
            st.sampled_from(["tolerations", "nodeSelector", "affinity"]), min_size=1
        ),
        known=facts(),
    )
    def holds(spec: JSON, added: frozenset[str], known: Facts) -> None:
        before = {key: spec[key] for key in spec.keys() - added - {"nodeName"}}
        before["schedulingGates"] = [{"name": "example.com/waits"}]
        try:
            old = setup.request("POST", path, pod(before))
        except ApiError:
            return
        del old["metadata"]["resourceVersion"]
        after = {key: spec[key] for key in added & spec.keys()}
        if "tolerations" in after:
            after["tolerations"] = [*old["spec"].get("tolerations", ()), *after["tolerations"]]
        new = {**old, "spec": {**old["spec"], **after}}
        request = Request(operation="UPDATE", old=old)
        variants = [
            msgspec.structs.replace(known, nodes=nodes, runtime_scheduling=ADDED)
            for nodes in NODES.values()
        ]
        try:
            for policy in GENERATED.values():
                outcome = lines[policy].update(new)
                verdict, wrong = compare(policy, str((old, new)), new, outcome, request, variants)
                tally[verdict] += 1
                assert not wrong, wrong
        finally:
            setup.request("DELETE", f"{path}/{old['metadata']['name']}?gracePeriodSeconds=0")

    holds()
    print(f"\n{dict(tally)}")
    assert tally["denied by both"] > 0
    assert tally["allowed by both"] > 0


SHOWS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
LEAK = spec_with(containers=[{"name": "main", "image": "app", "env": SHOWS}])


@CLAIMS
@pytest.mark.slow("creates a Pod of every class")
def test_the_api_server_denies_no_class_of_pods_that_the_engine_allows(lines: Lines) -> None:
    """The classes of ``gpufence policy diff``, with each action of the rule."""
    enforcing, alone = BY_ACTION["enforce"], list[str]()
    create_runtime_class(lines[enforcing].cluster, "nvidia")
    tally: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for own in dict.fromkeys(classes(enforcing, enforcing)):
        *_, obj = objects_of(own, "default")
        name = json.dumps(obj)
        outcomes = {line: line.create(obj) for line in {lines[each] for each in BY_ACTION.values()}}
        for action, policy in BY_ACTION.items():
            outcome = outcomes[lines[policy]]
            verdict, wrong = compare(policy, name, obj, outcome, Request(), [Facts()])
            tally[action][verdict] += 1
            alone += wrong
    print("".join(f"\n{action}: {dict(counts)}" for action, counts in tally.items()))
    assert not alone, "\n".join(alone)
    assert tally["enforce"]["denied by both"] > 0


def test_the_largest_pods_that_the_api_server_judges_stay_within_its_cost(
    control_plane: ControlPlane,
) -> None:
    away = {"key": PRESENT, "operator": "NotIn", "values": ["true"]}
    terms: list[JSON] = [
        {"matchExpressions": [away, {"key": f"l-{n}.example", "operator": "Exists"}]}
        for n in range(33)
    ]
    others = [{"key": f"key-{n}.example", "operator": "Exists"} for n in range(99)]
    tolerating = spec_with(tolerations=[*others, KEY])
    kept_off = {**tolerating, **required(*terms)}
    with in_tree(control_plane, of_pools(10)) as line:
        assert line.create(pod(kept_off)).verdict == "accepted"
        outcome = line.create(pod(tolerating))
        assert "pool-trespass: spec.tolerations[99]" in outcome.message
        # With more, it is the webhook's.
        more = [*others, *others, *others, KEY]
        assert line.create(pod({**tolerating, "tolerations": more})).verdict == "accepted"


TRESPASSER = pod(
    {
        "containers": [{"name": "main", "image": "app"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
)


def test_conditions_leave_to_the_webhook_what_is_too_large_and_templates_that_change(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Before 1.37, an API server converts an object for each policy, and again for variables."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    trespasser = spec_with(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    large = dense()["200 of most things"]["spec"]
    plain = workload("Deployment", "plain", spec_with())
    with in_tree(control_plane, policy_of(default_spec()), denies_all=True) as line:
        line.api(SETUP_USER).request("POST", path, plain)
        for spec, created in ((trespasser, "denied"), (LEAK, "denied"), (large, "accepted")):
            deployment = workload("Deployment", "plain", spec)
            renamed = {**deployment, "metadata": {"name": "new"}}
            assert line.create(renamed, namespace).verdict == created
            assert line.update(deployment, namespace).verdict == "accepted"


def test_an_exception_expires_on_its_date_without_recompilation(lines: Lines) -> None:
    for expires, policy in EXPIRING.items():
        before = datetime.now(UTC).date()
        outcome = lines[policy].create(TRESPASSER)
        # The day may change while the test runs.
        days = before, datetime.now(UTC).date()
        verdicts = {"accepted" if day < expires else "denied" for day in days}
        assert outcome.verdict in verdicts, outcome.message
        # The exception is for Pods of that name, and for namespaces of those names.
        named = {**TRESPASSER, "metadata": {"name": "other"}}
        assert lines[policy].create(named).verdict == "denied"
        assert lines[policy].create(TRESPASSER, "law-dev").verdict == "denied"


NARROWED = yaml.safe_load("""
any value of a label:
  - [denied, gpu-memory In l4, gpu-memory NotIn none]
  - [denied, gpu-memory Exists, gpu-memory NotIn none, gpu-memory NotIn a, gpu-memory NotIn b]
  - [denied, gpu-memory In a b, gpu-memory NotIn a]
  - [accepted, gpu-memory In a b, gpu-memory NotIn none, gpu-memory NotIn a, gpu-memory NotIn b]
  - [accepted, gpu-memory In l4, gpu-memory DoesNotExist]
several values of a label:
  - [denied, nvidia.com/gpu.present In true, gpu-memory Gt 39]
  - [denied, nvidia.com/gpu.present In true, gpu-memory Lt 6]
  - [accepted, nvidia.com/gpu.present In true, gpu-memory Gt 40]
  - [accepted, nvidia.com/gpu.present In true, gpu-memory Lt 5]
  - [accepted, nvidia.com/gpu.present In true, gpu-memory Gt many]
two labels:
  - [denied, nvidia.com/gpu.present Exists]
  - [denied, nvidia.com/gpu.present NotIn false]
""")
"""By policy: a verdict, and the expressions of a term with the tolerations of each taint."""


def test_the_values_that_a_term_leaves_decide_about_the_pool(lines: Lines) -> None:
    tolerations = [{"key": key, "operator": "Exists"} for key in ("nvidia.com/gpu", "gpu")]
    for name, (verdict, *expressions) in ((n, row) for n, rows in NARROWED.items() for row in rows):
        obj = pod(
            spec_with(
                tolerations=tolerations,
                **required(
                    {
                        "matchExpressions": [
                            e for each in expressions for e in term(each)["matchExpressions"]
                        ]
                    }
                ),
            )
        )
        known = [Facts(nodes=nodes) for nodes in NODES.values()]
        denied = all(enforced(obj, GENERATED[name], Request(), each) for each in known)
        outcome = lines[GENERATED[name]].create(obj)
        assert (outcome.verdict, denied) == (verdict, verdict == "denied"), (name, expressions)


WILDCARD = {"operator": "Exists"}
KEY = {"key": "nvidia.com/gpu", "operator": "Exists"}


def test_a_template_with_every_toleration_is_left_to_the_webhook(lines: Lines) -> None:
    """A mutation keeps its Pods off GPU nodes, also if it names the key of a pool too."""
    spec = {
        "containers": [{"name": "main", "image": "app"}],
        "tolerations": [WILDCARD, KEY],
    }
    # Every taint of another effect opens no pool, so nothing is added.
    other = {**spec, "tolerations": [{**WILDCARD, "effect": "NoExecute"}, KEY]}
    policy = GENERATED["one taint"]

    def is_left(kind: str) -> None:
        agent, denied = workload(kind, "agent", spec), workload(kind, "agent", other)
        assert not enforced(agent, policy, Request(), Facts())
        assert enforced(denied, policy, Request(), Facts())
        assert lines[policy].create(denied).verdict == "denied"
        outcome = lines[policy].create(agent)
        assert outcome.verdict == "accepted", outcome.message

    each(sorted(WORKLOADS.keys() - {"DaemonSet"}), is_left)


PATCHES: dict[str, JSON] = {
    "alone": {},
    "with a deletion timestamp": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    "with an annotation of a scheduler": {
        "metadata": {"annotations": {"gpu-fraction": "0.5"}},
        "spec": {"schedulerName": "kai-scheduler"},
    },
}


def test_a_debug_container_is_judged_with_the_stored_pod(lines: Lines) -> None:
    """The API server restores all but the new containers, whatever the same request says.

    The Pod has findings already: a container and a debug container of before show devices.
    """
    line, path = lines[KAI], "/api/v1/namespaces/default/pods"
    setup = line.api(SETUP_USER)
    leaking = {"name": "main", "image": "app", "env": SHOWS}
    created = setup.request("POST", path, line.labeled(pod({"containers": [leaking]})))
    where = f"{path}/{created['metadata']['name']}/ephemeralcontainers"
    before = {"name": "before", "image": "shell", "env": SHOWS}

    def is_judged(patch: str) -> None:
        for name, env, verdict in (("plain", [], "accepted"), ("debug", SHOWS, "denied")):
            changed = json.loads(json.dumps(stored))
            debugging = {"name": name, "image": "shell", "env": env}
            changed["spec"]["ephemeralContainers"].append(debugging)
            for part, fields in PATCHES[patch].items():
                changed[part] |= fields
            outcome = line.update(changed, subresource="ephemeralcontainers")
            assert outcome.verdict == verdict, outcome.message
        assert "spec.ephemeralContainers[1].env[0]: container" in outcome.message

    try:
        created["spec"]["ephemeralContainers"] = [before]
        del created["metadata"]["resourceVersion"]
        stored = setup.request("PUT", where, created)
        del stored["metadata"]["resourceVersion"]
        each(PATCHES, is_judged)
    finally:
        setup.request("DELETE", f"{path}/{created['metadata']['name']}?gracePeriodSeconds=0")

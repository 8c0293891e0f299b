"""Pods, nodes and their parts as Hypothesis strategies.

Everything is typed as the API types it, and little else is promised: operators may be misspelt,
terms empty, quantities odd, null may stand anywhere where a field may be left out. The words are
few, so that tolerations meet taints and selectors meet labels often.

Strategies are cached, because Hypothesis takes longer to analyze one than to draw from it. So each
draw makes its own objects: no `st.just` holds a list or a dictionary, which a test may change.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from pod_security_strategies import CONTAINER_CONTEXTS, POD_CONTEXTS
from policies.document import PolicyError
from policies.facts import Facts
from policies.kubernetes.claims import Claim
from policies.kubernetes.nodes import Node
from policies.kubernetes.pod import RESOURCE_SIDES
from policies.kubernetes.scheduling import Taint
from policies.policy import Policy, Pool
from specs import policy_of

JSON = dict[str, Any]

PRESENT = "nvidia.com/gpu.present"
NODE_TYPE = "node-type"
AMD = "feature.node.kubernetes.io/amd-gpu"
MEMORY = "gpu-memory"
ZONE = "topology.kubernetes.io/zone"

_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_TAINT_KEYS = ("nvidia.com/gpu", "amd.com/gpu", "gpu", "dedicated")
_TAINT_VALUES = ("", "present", "true", "5", "40")
_LABELS: dict[str, tuple[str, ...]] = {
    PRESENT: ("true", "false"),
    NODE_TYPE: ("gpu", "cpu"),
    AMD: ("true", ""),
    MEMORY: ("0", "5", "40", "040", "80", "large"),
    ZONE: ("a", "b"),
}
_NODE_NAMES = ("gpu-1", "gpu-2", "cpu-1", "cpu-2")
_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com", "rdma.example.com")
_CLAIMS = ("one", "two", "unknown")


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """An object that has any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _or_null(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The strategy, and sometimes null. The first in line is what examples shrink to."""
    return st.one_of(strategy, strategy, strategy, st.none())


# --------------------------------------------------------------------------------- quantities


@cache
def quantities() -> st.SearchStrategy[Any]:
    """Counts of devices as in files and reviews: mostly small, sometimes odd."""
    return st.one_of(
        st.sampled_from([1, "1", 2, "2", 8]),
        st.sampled_from([0, "0", "0.0", None]),
        st.sampled_from(
            ["1000m", "1e0", "1.0", 1.0, "2000m", "500m", 0.5, "1.5", "-1", -1, "+1", "1n", "1k"]
        ),
        st.sampled_from(["1Ki", "1Ei", "8Ei", "9E", ".5", "1.", "0.0000000001", "999999999n"]),
    )


@cache
def quantity_texts() -> st.SearchStrategy[str]:
    """Text that is a quantity, nearly one, or none."""
    number = st.builds(
        "".join,
        st.tuples(
            st.sampled_from(["", "", "+", "-"]),
            st.sampled_from(["", "", "0", "000"]),
            st.text("0123456789", max_size=6),
            st.sampled_from(["", "", "."]),
            st.text("0123456789", max_size=12),
        ),
    )
    suffix = st.one_of(
        st.sampled_from(["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
        st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-400, 400)),
        st.builds("{}{}{}".format, st.sampled_from("eE"), st.just("+0"), st.integers(0, 40)),
        st.text("eEinumkKMGTP+-0123456789.", max_size=4),
    )
    near = st.builds("{}{}".format, number, suffix)
    spaced = st.builds(
        "{}{}{}".format, st.sampled_from(["", " ", "\t"]), near, st.sampled_from([" ", "\n", ""])
    )
    return st.one_of(
        near, near, spaced, st.text("0123456789.+-eEinumkKMGTPi x", max_size=10)
    ).filter(_has_a_small_exponent)


def _has_a_small_exponent(text: str) -> bool:
    """Go takes minutes over an exponent of millions, and the oracle rejects it."""
    digits = text.strip().lower().rpartition("e")[2].lstrip("+-")
    return not digits.isdigit() or int(digits) <= 400


@cache
def resource_names() -> st.SearchStrategy[str]:
    """Names of resources, or nearly."""
    known = st.sampled_from(
        [
            "nvidia.com/gpu",
            "nvidia.com/mig-1g.10gb",
            "cpu",
            "hugepages-2Mi",
            "example.kubernetes.io/widget",
            "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
            "requests.nvidia.com/gpu",
            "smarter-devices/fuse",
        ]
    )
    part = st.text("aB0-._", max_size=4)
    long = st.sampled_from(["a" * 63, "a" * 64, "a" * 245, "a." * 122 + "a", "a" * 253, "a" * 254])
    generated = st.builds(
        "{}{}{}".format,
        st.one_of(part, long),
        st.sampled_from(["", "/", "/", "//"]),
        st.one_of(part, long),
    )
    return st.one_of(
        known, generated, st.builds("{}{}".format, known, st.sampled_from(["", "/x", "\n", " "]))
    )


# ------------------------------------------------------------------- taints, tolerations, nodes


@cache
def taints() -> st.SearchStrategy[JSON]:
    """A taint of a node: key, effect and, mostly, a value."""
    return st.fixed_dictionaries(
        {"key": st.sampled_from(_TAINT_KEYS), "effect": st.sampled_from(_EFFECTS)},
        optional={"value": st.sampled_from(_TAINT_VALUES)},
    )


@cache
def tolerations() -> st.SearchStrategy[JSON]:
    """A toleration with any operator and effect, valid or not."""
    return st.one_of(
        _optional(
            key=_or_null(st.sampled_from([*_TAINT_KEYS, ""])),
            operator=_or_null(
                st.sampled_from(["Exists", "Equal", "Exists", "", "Lt", "Gt", "exists"])
            ),
            value=_or_null(st.sampled_from([*_TAINT_VALUES, "4", "05", "-1", "+5"])),
            effect=_or_null(st.sampled_from([*_EFFECTS, "", "NoSchedul"])),
            tolerationSeconds=st.just(30),
        ),
        st.builds(
            lambda key, effect: {"key": key, "operator": "Exists", "effect": effect},
            st.sampled_from(_TAINT_KEYS),
            st.sampled_from(_EFFECTS),
        ),
        st.fixed_dictionaries({"operator": st.just("Exists")}),
    )


@cache
def labels() -> st.SearchStrategy[dict[str, str]]:
    """Labels of a node."""
    return st.fixed_dictionaries(
        {}, optional={key: st.sampled_from(values) for key, values in _LABELS.items()}
    )


@cache
def nodes() -> st.SearchStrategy[JSON]:
    """A Node as the scheduler sees it."""
    return st.builds(_node, st.sampled_from(_NODE_NAMES), labels(), st.lists(taints(), max_size=2))


@cache
def node_sets() -> st.SearchStrategy[list[JSON]]:
    """Nodes with unique names."""
    return st.lists(
        nodes(), min_size=1, max_size=4, unique_by=lambda node: str(node["metadata"]["name"])
    )


@st.composite
def fenced_nodes(draw: st.DrawFn, pool: Pool) -> JSON:
    """A node of the pool: all its labels, all its taints, and perhaps more of either."""
    of_pool = {
        key: draw(st.sampled_from(values or _LABELS[key])) for key, values in pool.selector.items()
    }
    return _node(
        draw(st.sampled_from(_NODE_NAMES)),
        draw(labels()) | of_pool,
        [
            {
                "key": taint.key,
                "effect": taint.effect,
                "value": draw(st.sampled_from(_TAINT_VALUES))
                if taint.value is None
                else taint.value,
            }
            for taint in pool.taints
        ]
        + draw(st.lists(taints(), max_size=1)),
    )


def _node(name: str, labels: dict[str, str], taints: list[JSON]) -> JSON:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


# ------------------------------------------------------------------------------ node selection

_VALUES = st.sampled_from([value for values in _LABELS.values() for value in values])
_NUMBERS = ("0", "4", "5", "6", "39", "40", "041", "9223372036854775807")
_ODD_VALUES = ("-5", "+5", "no label value!", "plenty", "9" * 20)


@cache
def expressions() -> st.SearchStrategy[JSON]:
    """A requirement of a node selector term, mostly one that parses."""
    own = st.sampled_from(list(_LABELS)).flatmap(
        lambda key: st.fixed_dictionaries(
            {
                "key": st.just(key),
                "operator": st.sampled_from(["In", "NotIn"]),
                "values": st.lists(st.sampled_from(_LABELS[key]) | _VALUES, min_size=1, max_size=2),
            }
        )
    )
    existence = st.fixed_dictionaries(
        {
            "key": st.sampled_from([*_LABELS, "unheard-of"]),
            "operator": st.sampled_from(["Exists", "DoesNotExist"]),
        }
    )
    comparison = st.fixed_dictionaries(
        {
            "key": st.just(MEMORY),
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": st.lists(st.sampled_from(_NUMBERS), min_size=1, max_size=1),
        }
    )
    odd = st.fixed_dictionaries(
        {
            "key": st.sampled_from([PRESENT, MEMORY, "no key!", ""]),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt", "in", ""]),
        },
        optional={"values": _or_null(st.lists(_VALUES | st.sampled_from(_ODD_VALUES), max_size=2))},
    )
    return st.one_of(own, own, existence, comparison, odd)


@cache
def fields() -> st.SearchStrategy[JSON]:
    """A requirement on a node's only field, its name."""
    return st.fixed_dictionaries(
        {
            "key": st.sampled_from(["metadata.name", "metadata.name", "metadata.uid"]),
            "operator": st.sampled_from(["In", "NotIn", "In", "Exists"]),
            "values": st.lists(st.sampled_from([*_NODE_NAMES, ""]), min_size=1, max_size=1)
            | st.lists(st.sampled_from(_NODE_NAMES), max_size=2),
        }
    )


@cache
def terms() -> st.SearchStrategy[JSON]:
    """A node selector term, empty ones among them."""
    return st.one_of(
        st.lists(expressions(), min_size=1, max_size=3).map(lambda e: {"matchExpressions": e}),
        st.fixed_dictionaries(
            {"matchFields": st.lists(fields(), min_size=1, max_size=1)},
            optional={"matchExpressions": st.lists(expressions(), min_size=1, max_size=2)},
        ),
        _optional(
            matchExpressions=_or_null(st.lists(expressions(), max_size=3)),
            matchFields=_or_null(st.lists(fields(), max_size=1)),
        ),
    )


@cache
def node_selections() -> st.SearchStrategy[JSON]:
    """The fields of a Pod's spec that say where it may go."""
    required = st.fixed_dictionaries(
        {"nodeSelectorTerms": st.lists(terms(), min_size=1, max_size=3)}
    )
    plain = required.map(
        lambda required: {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    )
    nothing = _optional(
        nodeSelectorTerms=st.sampled_from([True, False]).map(lambda null: None if null else [])
    )
    odd = _optional(
        nodeAffinity=_or_null(
            _optional(
                requiredDuringSchedulingIgnoredDuringExecution=_or_null(nothing | required),
                preferredDuringSchedulingIgnoredDuringExecution=st.builds(
                    lambda: [{"weight": 1, "preference": {"matchExpressions": []}}]
                ),
            )
        ),
        podAntiAffinity=st.builds(dict),
    )
    pairs = st.dictionaries(
        st.sampled_from([*_LABELS, "unheard-of"]),
        st.sampled_from(["true", "gpu", "a", "40", ""]),
        max_size=2,
    )
    return _optional(nodeSelector=_or_null(pairs), affinity=st.one_of(plain, plain, odd, st.none()))


# ---------------------------------------------------------------------------------------- Pods

_DEVICES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb",
    "smarter-devices/fuse",
    "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    "deviceclass.resource.kubernetes.io/rdma.example.com",
    "example.kubernetes.io/widget",
    "cpu",
)


@cache
def _resources(devices: tuple[str, ...]) -> st.SearchStrategy[JSON]:
    side = _or_null(st.dictionaries(st.sampled_from(devices), quantities(), max_size=2))
    claims = st.builds(lambda: [{"name": "claim-0"}])
    return _optional(limits=side, requests=side, claims=claims)


def _containers(
    devices: tuple[str, ...], *, min_size: int = 0, **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[list[JSON]]:
    container = st.fixed_dictionaries(
        {
            "name": st.sampled_from(["main", "side", "other"]),
            "image": st.just("registry.example/app"),
        },
        optional={
            "resources": _or_null(_resources(devices)),
            "securityContext": CONTAINER_CONTEXTS,
            "env": _or_null(
                st.lists(
                    st.fixed_dictionaries(
                        {"name": st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "MODE"])},
                        optional={"value": st.sampled_from(["all", "void", "0", ""])},
                    ),
                    max_size=2,
                )
            ),
            **more,
        },
    )
    return st.lists(container, min_size=min_size, max_size=2)


@cache
def _claims() -> st.SearchStrategy[list[JSON]]:
    source = st.one_of(
        st.builds(lambda name: {"resourceClaimName": name}, st.sampled_from(_CLAIMS)),
        st.builds(lambda name: {"resourceClaimTemplateName": name}, st.sampled_from(_CLAIMS)),
    )
    return st.lists(source, max_size=2).map(
        lambda sources: [{"name": f"claim-{i}", **source} for i, source in enumerate(sources)]
    )


@cache
def _specs(devices: tuple[str, ...], *, claims: bool) -> st.SearchStrategy[JSON]:
    return st.fixed_dictionaries(
        {"containers": _containers(devices or ("cpu",), min_size=1)},
        optional={
            "initContainers": _or_null(
                _containers(devices or ("cpu",), restartPolicy=st.just("Always"))
            ),
            "ephemeralContainers": _or_null(_containers(("cpu",))),
            "tolerations": _or_null(st.lists(tolerations(), max_size=3)),
            "securityContext": POD_CONTEXTS,
            "os": st.sampled_from(["linux", "windows"]).map(lambda name: {"name": name}),
            "runtimeClassName": st.sampled_from(["nvidia", "gvisor"]),
            **({"resourceClaims": _claims()} if claims else {}),
        },
    )


@cache
def _requests(devices: tuple[str, ...]) -> st.SearchStrategy[JSON]:
    counts = st.dictionaries(st.sampled_from(devices), st.just(1) | quantities(), max_size=2)
    return st.dictionaries(st.sampled_from(RESOURCE_SIDES), counts, min_size=1)


@st.composite
def pods(draw: st.DrawFn, *, devices: tuple[str, ...] = _DEVICES, claims: bool = True) -> JSON:
    """A Pod by the types of the API, valid or not; without ``devices`` it requests none."""
    spec = draw(_specs(devices, claims=claims))
    if draw(st.booleans()) and devices:
        spec["containers"][0]["resources"] = draw(_requests(devices))
    spec |= draw(node_selections())
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}


@st.composite
def gpu_pods(draw: st.DrawFn, device: str = "nvidia.com/gpu") -> JSON:
    """A Pod whose first container requests one device of a pool, and that requests no other."""
    pod = draw(pods(devices=(), claims=False))
    pod["spec"]["containers"][0]["resources"] = {"limits": {device: 1}}
    return pod


@st.composite
def workloads(draw: st.DrawFn) -> JSON:
    """A Pod in a core workload or in a custom resource that embeds its template."""
    pod = draw(pods())
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod["spec"]}
    version, kind = draw(
        st.sampled_from(
            [
                ("apps/v1", "Deployment"),
                ("apps/v1", "DaemonSet"),
                ("batch/v1", "Job"),
                ("batch/v1", "CronJob"),
                ("kubeflow.org/v1", "PyTorchJob"),
            ]
        )
    )
    spec: JSON = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    elif kind == "PyTorchJob":
        spec = {"pytorchReplicaSpecs": {"Master": spec, "Worker": {"replicas": 2, **spec}}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "workload"}, "spec": spec}


@cache
def facts() -> st.SearchStrategy[Facts]:
    """Facts about the claims that Pods name; ``unknown`` is never known."""
    claim = st.lists(
        st.frozensets(st.sampled_from(_CLASSES), min_size=1, max_size=2), max_size=2
    ).map(lambda requests: Claim(tuple(requests)))
    known = st.dictionaries(st.sampled_from([("default", "one"), ("default", "two")]), claim)
    return st.builds(
        lambda claims, templates: Facts(claims=claims, claim_templates=templates),
        known,
        known,
    )


# ------------------------------------------------------------------------------------ policies


def _pool(**fields: Any) -> JSON:
    return {
        "name": "nvidia",
        "resources": ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*"],
        "sharedResources": ["nvidia.com/gpu.shared"],
        "deviceClasses": ["gpu.nvidia.com", "mig.nvidia.com"],
        "taints": [{"key": "nvidia.com/gpu"}],
        "nodeSelector": {PRESENT: "true"},
        **fields,
    }


def _model(
    name: str,
    labels: dict[str, str],
    taint: JSON,
    namespaces: list[str] | None = None,
    *requirements: JSON,
) -> JSON:
    """A pool of one model of NVIDIA GPUs among others."""
    allowed = {"allowedNamespaces": {"names": namespaces}} if namespaces else {}
    expressions = {"matchExpressions": list(requirements)}
    return _pool(name=name, nodeSelector=labels, taints=[taint], **allowed, **expressions)


def _in(key: str, *values: str) -> JSON:
    return {"key": key, "operator": "In", "values": list(values)}


def _exists(key: str) -> JSON:
    return {"key": key, "operator": "Exists"}


def _policy(*pools: JSON, **fields: Any) -> Policy:
    return policy_of({"pools": list(pools), **fields})


def policies() -> dict[str, Policy]:
    """Policies by what is particular about them, without exemptions."""
    amd: JSON = {
        "name": "amd",
        "resources": ["amd.com/gpu"],
        "deviceClasses": ["gpu.amd.com"],
        "taints": [{"key": "amd.com/gpu"}],
        "nodeSelector": {AMD: "true"},
    }
    both = [{"key": "nvidia.com/gpu", "value": "present"}, {"key": "gpu", "value": "true"}]
    effects = [{"key": "nvidia.com/gpu", "effect": effect} for effect in _EFFECTS]
    return {
        "one taint": _policy(_pool()),
        "both conventions": _policy(_pool(taints=both)),
        "every effect": _policy(_pool(taints=effects)),
        "two labels": _policy(_pool(nodeSelector={PRESENT: "true", NODE_TYPE: "gpu"})),
        "several values of a label": _policy(
            _pool(matchExpressions=[_in(MEMORY, "5", "40", "large")]),
        ),
        "any value of a label": _policy(_pool(nodeSelector={}, matchExpressions=[_exists(MEMORY)])),
        "two pools": _policy(_pool(), amd),
        "two pools behind one taint": _policy(
            _pool(taints=[{"key": "gpu"}], nodeSelector={NODE_TYPE: "gpu", PRESENT: "true"}),
            {**amd, "taints": [{"key": "gpu"}], "nodeSelector": {NODE_TYPE: "gpu", AMD: "true"}},
        ),
        "one resource, told apart by one label": _policy(
            _model("small", {PRESENT: "true", MEMORY: "40"}, {"key": "nvidia.com/gpu"}),
            _model("large", {PRESENT: "true", MEMORY: "80"}, {"key": "gpu", "value": "true"}),
            _model("reserved", {PRESENT: "true", MEMORY: "5"}, {"key": "gpu"}, ["research"]),
            amd,
        ),
        "one resource, told apart by several labels": _policy(
            _model("typed", {PRESENT: "true", NODE_TYPE: "gpu"}, {"key": "nvidia.com/gpu"}),
            _model("sized", {MEMORY: "40", ZONE: "a"}, {"key": "gpu", "value": "true"}),
            _model("reserved", {PRESENT: "true", ZONE: "b"}, {"key": "gpu"}, ["research"]),
            amd,
        ),
        "one resource, told apart by sets of values": _policy(
            _model(
                "small", {PRESENT: "true"}, {"key": "gpu"}, None, _in(MEMORY, "5", "40", "large")
            ),
            _model("large", {}, {"key": "gpu"}, None, _in(MEMORY, "40", "80"), _in(ZONE, "b")),
            {**amd, "nodeSelector": {}, "matchExpressions": [_exists(AMD)]},
        ),
        "one resource, told apart by which label is there": _policy(
            _model("sized", {}, {"key": "nvidia.com/gpu"}, None, _exists(MEMORY)),
            _model("typed", {}, {"key": "gpu"}, None, _in(NODE_TYPE, "gpu", "cpu"), _exists(ZONE)),
            amd,
        ),
        "a pool of all other nodes": _policy(
            _model("typed", {NODE_TYPE: "gpu"}, {"key": "nvidia.com/gpu"}, ["research"]),
            _model(
                "others",
                {PRESENT: "true"},
                {"key": "nvidia.com/gpu"},
                None,
                {"key": NODE_TYPE, "operator": "NotIn", "values": ["gpu"]},
                {"key": AMD, "operator": "DoesNotExist"},
            ),
            amd,
        ),
        "groups and a runtime class": _policy(
            _pool(runtimeClass="nvidia"),
            hardening={"runAsUser": 1000, "runAsGroup": 1, "fsGroup": 2},
        ),
        "baseline": _policy(_pool(), hardening={"level": "baseline"}),
        "labels of namespaces": _policy(
            _pool(),
            overrides=[
                {"namespaces": ["def*"], "rules": {"pool-trespass": "warn"}, "mode": "warn"},
                {"namespaces": ["default"], "rules": {"pool-trespass": "enforce"}},
                {"namespaces": ["default"], "mode": "enforce"},
                {"namespaces": ["def"], "mode": "audit"},
                {"namespaceSelector": {"matchLabels": {"tier": "dev"}}, "mode": "warn"},
                {
                    "namespaceSelector": {
                        "matchExpressions": [
                            {"key": "tier", "operator": "NotIn", "values": ["dev", "test"]},
                            _exists("team"),
                        ]
                    },
                    "rules": {"pool-trespass": "warn", "device-leak": "warn"},
                    "mode": "enforce",
                },
                {
                    "namespaces": ["law-t*"],
                    "namespaceSelector": {
                        "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]
                    },
                    "rules": {"device-leak": "enforce"},
                },
            ],
            exceptions=[
                {
                    "rules": ["device-leak", "pool-trespass"],
                    "namespaceSelector": {"matchLabels": {"tier": "test", "team": "a"}},
                    "reason": "tests",
                }
            ],
        ),
    }


@st.composite
def overlapping_policies(draw: st.DrawFn) -> Policy:
    """A policy of pools that can share nodes, some of them for other namespaces or fewer devices.

    A pool has labels that its nodes must have, and perhaps one that they must not have.
    """
    keys = st.sampled_from([PRESENT, NODE_TYPE, MEMORY, ZONE])
    values = {key: st.sampled_from(_LABELS[key][:2]) for key in (PRESENT, NODE_TYPE, MEMORY, ZONE)}
    pools = []
    for name in ("first", "second", "third")[: draw(st.integers(2, 3))]:
        labels = [
            _in(key, draw(values[key])) if draw(st.booleans()) else _exists(key)
            for key in draw(st.lists(keys, min_size=1, max_size=2, unique=True))
        ]
        left_out = draw(st.none() | keys)
        if left_out:
            labels.append(
                {"key": left_out, "operator": "NotIn", "values": [draw(values[left_out])]}
                if draw(st.booleans())
                else {"key": left_out, "operator": "DoesNotExist"}
            )
        restrictions: list[JSON] = [
            {},
            {"allowedNamespaces": {"names": ["research"]}},
            {"largestRequest": 1},
        ]
        pools.append(
            {
                "name": name,
                "resources": [draw(st.sampled_from(["nvidia.com/gpu"] * 3 + ["amd.com/gpu"]))],
                "taints": [{"key": draw(st.sampled_from(["nvidia.com/gpu", "gpu"]))}],
                "matchExpressions": labels,
                **draw(st.sampled_from(restrictions)),
            }
        )
    try:
        return _policy(*pools)
    except PolicyError:
        reject()


def as_taint(taint: JSON) -> Taint:
    """Return a node's taint as the rules read it."""
    return Taint(taint["key"], taint["effect"], taint.get("value") or "")


def as_node(node: JSON) -> Node:
    """Return a Node as the facts have it."""
    metadata, taints = node["metadata"], node["spec"]["taints"]
    return Node(metadata["name"], metadata["labels"], tuple(map(as_taint, taints)))

"""What the index of nodes finds is what a walk over all of them finds, whatever came before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import strategies
from deciding import pod, required
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes import nodes as nodes_module
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Alternative, Taint, accepts
from policies.kubernetes.selector import Selector, selects
from typed import requirement

NAMES = [f"n{number}" for number in range(6)]
KEYS = ["zone", "gpu", "size"]
VALUES = ["", "a", "1", "3", "7", "03"]
DEVICES = ["a/gpu", "b/gpu"]

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
TAINTS = [Taint("gpu", "NoSchedule"), Taint("gpu", "NoExecute", "a"), Taint("soft", "NoSchedule")]
taints = st.lists(st.sampled_from(TAINTS), unique=True).map(tuple)
devices = st.dictionaries(st.sampled_from(DEVICES), st.integers(0, 2))
nodes = st.builds(Node, st.sampled_from(NAMES), labels, taints, devices, devices)
some_values = st.lists(st.sampled_from(VALUES), min_size=1)


def expression(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


keys = st.sampled_from(KEYS)
expressions = st.one_of(
    st.builds(expression, keys, st.sampled_from(["In", "NotIn"]), some_values),
    st.builds(expression, keys, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
    st.builds(
        expression, keys, st.sampled_from(["Gt", "Lt"]), st.sampled_from([["1"], ["3"], ["9"]])
    ),
)
fields = st.builds(
    expression,
    st.sampled_from(["metadata.name", "metadata.namespace"]),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from([[name] for name in [*NAMES, "unheard-of", ""]]),
)


def requirements(written: Iterable[dict[str, Any]]) -> tuple[Requirement, ...]:
    return tuple(map(requirement, written))


selections = st.builds(
    Alternative,
    labels,
    st.lists(expressions, max_size=3).map(requirements),
    st.lists(fields, max_size=2).map(requirements),
    st.just(""),
)


selectors = st.dictionaries(keys, st.lists(st.sampled_from(VALUES), unique=True).map(tuple))


def names(found: Iterable[Node]) -> list[str]:
    return sorted(node.name for node in found)


@given(st.lists(nodes | st.sampled_from(NAMES)), selections, selectors)
@example(
    [Node("n0", {"zone": "a"}), Node("n1", {"zone": "b"})],
    Alternative({}, requirements([expression("zone", "In", ["a", "b", "a"])]), (), ""),
    {"zone": ()},
)
def test_index_queries_equal_a_linear_search_after_any_changes(
    changes: list[Node | str], selection: Alternative, selector: Selector
) -> None:
    # So that few nodes are many.
    with patch.multiple(nodes_module, _MOST_LISTED=2, _FEW=1, _BLOCK_COST=6):
        check_changes(changes, selection, selector)


def check_changes(changes: list[Node | str], selection: Alternative, selector: Selector) -> None:
    index = NodeIndex()
    known: dict[str, Node] = {}
    for change in changes:
        # What is computed between two changes is not stale after the second.
        answers(index, selection, selector)
        if isinstance(change, Node):
            assert index.update(change) == (known.get(change.name) != change)
            known[change.name] = change
        else:
            assert index.remove(change) == (known.pop(change, None) is not None)
    assert names(index) == sorted(known)
    assert len(index) == len(known)
    accepted = [node for node in known.values() if accepts(selection, node.name, node.labels)]
    assert names(index.nodes(index.accepted_by(selection))) == names(accepted)
    selected = [node for node in known.values() if selects(selector, node.labels)]
    assert names(index.nodes(index.selected_by(selector))) == names(selected)
    assert all(index.get(name) == known.get(name) for name in NAMES)
    rebuilt = NodeIndex(known.values())
    assert answers(index, selection, selector) == answers(rebuilt, selection, selector)


def answers(index: NodeIndex, selection: Alternative, selector: Selector) -> dict[str, list[str]]:
    """Return the answers to all queries, by the query."""
    found = {
        "accepted": index.accepted_by(selection),
        "selected": index.selected_by(selector),
        **{f"fenced by {taint}": index.fenced_by([taint]) for taint in TAINTS},
        **{f"offers {n} {name}": index.offering(name, n) for name in DEVICES for n in (1, 2)},
        **{f"has {name}": index.having(name) for name in DEVICES},
        **{f"publishes {name}": index.publishing(name) for name in DEVICES},
    }
    known = {"resources": sorted(index.resources()), "published": sorted(index.published())}
    return known | {query: names(index.nodes(numbers)) for query, numbers in found.items()}


@pytest.mark.parametrize(
    "wanted",
    [
        expression("serial", "Gt", ["90"]),
        expression("serial", "Gt", ["-1"]),
        expression("serial", "Lt", ["127"]),
        expression("serial", "Lt", ["1000"]),
        expression("serial", "Gt", ["1000"]),
        expression("rack", "In", ["0", "1", "none"]),
        expression("rack", "NotIn", ["0", "1", "none"]),
        expression("host", "NotIn", ["n7", "n64", "n199"]),
        expression("rack", "Exists", []),
        expression("rack", "DoesNotExist", []),
        expression("host", "Gt", ["1"]),
    ],
    ids=str,
)
def test_index_queries_equal_a_linear_search_in_many_nodes(wanted: dict[str, Any]) -> None:
    known = [Node(f"n{n}", {"serial": str(n // 2), "host": f"n{n}"}) for n in range(300)]
    known[100:250] = [
        Node(n.name, {**n.labels, "rack": str(i % 4)}) for i, n in enumerate(known[100:250])
    ]
    index = NodeIndex(known)
    for node in known[::3]:
        index.remove(node.name)
    alternative = Alternative({}, requirements([wanted]), (), "")
    accepted = [n for n in index if accepts(alternative, n.name, n.labels)]
    assert names(index.nodes(index.accepted_by(alternative))) == names(accepted)


def test_what_a_query_of_numbers_adds_up_does_not_grow_with_the_nodes() -> None:
    def serial(number: int) -> Node:
        return Node(f"n{number}", {"serial": str(number * 7 % 5000)})

    index = NodeIndex(map(serial, range(20_000)))
    queries = [
        Alternative({}, requirements([expression("serial", operator, [bound])]), (), "")
        for operator in ("Gt", "Lt")
        for bound in ("-1", "130", "2500", "9000")
    ]
    added: list[object] = []
    union = nodes_module._union  # noqa: SLF001 - replaced below

    def counted(parts: Iterable[Any]) -> int:
        parts = list(parts)
        added.extend(number for members in parts for number in members)
        return union(parts)

    for query in queries:
        index.accepted_by(query)
    with patch.object(nodes_module, "_union", counted):
        for number in range(20_000, 20_100):
            index.update(serial(number))
            index.remove(f"n{number - 20_000}")
            for query in queries:
                added.clear()
                index.accepted_by(query)
                # The query's block, and those that changed since the last query.
                assert len(added) <= 4 * 512
    for query in queries:
        accepted = [n.name for n in index if accepts(query, n.name, n.labels)]
        assert names(index.nodes(index.accepted_by(query))) == sorted(accepted)


def test_a_node_is_fenced_only_by_a_matching_hard_taint_of_the_pool() -> None:
    any_value, one_value = Taint("gpu", "NoSchedule"), Taint("gpu", "NoExecute", "a")
    taints = (any_value, one_value, Taint("soft", "PreferNoSchedule"))

    def fenced(*own: Taint) -> bool:
        return Node("n", {}, own).is_fenced_by(taints)

    assert fenced(Taint("gpu", "NoSchedule", "whatever"))
    assert fenced(Taint("other", "NoSchedule", ""), Taint("gpu", "NoExecute", "a"))
    assert not fenced()
    assert not fenced(Taint("gpu", "NoExecute", "b"))
    assert not fenced(Taint("soft", "PreferNoSchedule", ""))


class CountedLabels(dict[str, str]):
    """Labels of a node that count how often they are read."""

    reads = 0

    def __getitem__(self, key: str) -> str:
        CountedLabels.reads += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        CountedLabels.reads += 1
        return super().get(key, default)


@pytest.mark.parametrize(
    "wanted",
    [
        [expression("zone", "NotIn", ["a", "b", "c"])],
        [expression("zone", "DoesNotExist", [])],
        [expression("zone", "Exists", []), expression("zone", "NotIn", ["a", "b", "c"])],
        [expression("zone", "In", ["a", "b"]), expression("host", "NotIn", ["n1"])],
        [expression("serial", "Gt", ["5"])],
        [expression("serial", "Lt", ["500"]), expression("gpu.example.com/gpu", "Exists", [])],
    ],
)
@pytest.mark.parametrize("device", [None, {"gpu.example.com/gpu": 16}])
def test_a_decision_looks_at_no_node(
    wanted: list[dict[str, Any]], device: dict[str, int] | None
) -> None:
    """The cost of terms x nodes x pools held the event loop for seconds."""
    policy = strategies.policies()["one taint"]
    (pool,) = policy.pools
    nodes = NodeIndex(
        Node(
            f"n{n}",
            CountedLabels(zone="abc"[n % 3], serial=str(n), host=f"n{n}", **pool.node_selector),
            (Taint(pool.taints[0].key, "NoSchedule", ""),),
            {"nvidia.com/gpu": 8},
        )
        for n in range(300)
    )
    container = {"resources": {"limits": device or {}}}
    tolerations = [{"operator": "Exists"}]
    obj = pod(container, tolerations=tolerations, **required(*[{"matchExpressions": wanted}] * 50))
    CountedLabels.reads = 0
    decide(obj, policy, facts=Facts(nodes=nodes))
    assert CountedLabels.reads == 0


def test_a_node_selector_that_matches_every_node_causes_no_finding() -> None:
    """A cluster may be all GPU nodes, and its taints keep the Pod out."""
    (pool,) = strategies.policies()["one taint"].pools
    everywhere = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
    nodes = NodeIndex(Node(name, {**pool.node_selector, **everywhere}) for name in ("a", "b"))
    obj = pod(nodeSelector=everywhere)
    policy = strategies.policies()["one taint"]
    assert decide(obj, policy, facts=Facts(nodes=nodes)).findings == ()
    nodes.update(Node("plain", {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}))
    assert [f.path for f in decide(obj, policy, facts=Facts(nodes=nodes)).findings] == [
        "spec.nodeSelector"
    ]
    # The operating system alone selects no GPU nodes: many Pods name it.
    obj = pod(nodeSelector={"kubernetes.io/os": "linux"})
    assert decide(obj, policy, facts=Facts(nodes=nodes)).findings == ()

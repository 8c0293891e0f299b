"""What the index of nodes finds is what a walk over all of them finds, whatever came before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import policies.kubernetes.nodes
import strategies
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.names import NameSet
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Alternative, Taint, accepts
from policies.policy import Pool
from typed import requirement

NAMES = [f"n{number}" for number in range(6)]
KEYS = ["zone", "gpu", "size"]
VALUES = ["", "a", "1", "7"]

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
nodes = st.builds(Node, st.sampled_from(NAMES), labels)
some_values = st.lists(st.sampled_from(VALUES), min_size=1)


def expression(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


keys = st.sampled_from(KEYS)
expressions = st.one_of(
    st.builds(expression, keys, st.sampled_from(["In", "NotIn"]), some_values),
    st.builds(expression, keys, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
    st.builds(expression, keys, st.sampled_from(["Gt", "Lt"]), st.sampled_from([["1"], ["3"]])),
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


def pool_of(labels: dict[str, str]) -> Pool:
    return Pool("p", NameSet.of(["example.com/gpu"]), frozenset(), (), labels, NameSet())


def names(found: Iterable[Node]) -> list[str]:
    return sorted(node.name for node in found)


@given(st.lists(nodes | st.sampled_from(NAMES)), selections, labels.map(pool_of))
@example(
    [Node("n0", {"zone": "a"}), Node("n1", {"zone": "b"})],
    Alternative({}, requirements([expression("zone", "In", ["a", "b", "a"])]), (), ""),
    pool_of({}),
)
def test_index_queries_equal_a_linear_search_after_any_changes(
    changes: list[Node | str], selection: Alternative, pool: Pool
) -> None:
    index = NodeIndex()
    known: dict[str, Node] = {}
    for change in changes:
        if isinstance(change, Node):
            assert index.update(change) == (known.get(change.name) != change)
            known[change.name] = change
        else:
            assert index.remove(change) == (known.pop(change, None) is not None)
    assert names(index) == sorted(known)
    assert len(index) == len(known)
    accepted = [node for node in known.values() if accepts(selection, node.name, node.labels)]
    assert names(index.accepted_by(selection)) == names(accepted)
    of_pool = [node for node in accepted if pool.contains(node)]
    assert names(index.accepted_by(selection, pool.node_selector)) == names(of_pool)
    members = [node for node in known.values() if pool.contains(node)]
    assert names(index.with_labels(pool.node_selector)) == names(members)
    assert all(index.get(name) == known.get(name) for name in NAMES)


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


def test_an_index_query_examines_few_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = NodeIndex(
        Node(f"n{number}", {"os": "linux", "rack": str(number // 10), "host": f"n{number}"})
        for number in range(1000)
    )
    looked_at = []

    def counting(selection: Alternative, name: str, labels: Mapping[str, str]) -> bool:
        looked_at.append(name)
        return accepts(selection, name, labels)

    monkeypatch.setattr(policies.kubernetes.nodes, "accepts", counting)

    def cost(
        labels: dict[str, str],
        *wanted: dict[str, Any],
        pool: Pool | None = None,
        field: str = "",
    ) -> int:
        named = (expression("metadata.name", "In", [field]),) if field else ()
        way = Alternative(labels, requirements(wanted), requirements(named), "")
        any(index.accepted_by(way, pool.node_selector if pool else {}))
        count = len(looked_at)
        looked_at.clear()
        return count

    assert cost({"os": "linux"}) == 1
    assert cost({"os": "linux", "host": "n5"}) == 1
    assert cost({"os": "linux", "rack": "5"}, expression("host", "NotIn", ["n50"])) <= 2
    assert cost({"os": "other"}) == 0
    assert cost({}, expression("gpu", "Exists", [])) == 0
    assert cost({"os": "linux"}, expression("host", "In", ["n7", "n8", "none"])) == 1
    assert cost({"os": "linux"}, expression("os", "In", ["x"])) == 0
    assert cost({"os": "linux"}, field="n7") == 1
    assert cost({"os": "linux"}, field="none") == 0
    impossible = expression("os", "NotIn", ["linux"])
    assert cost({"os": "linux"}, impossible, pool=pool_of({"rack": "5"})) == 10


def test_a_node_selector_that_matches_every_node_causes_no_finding() -> None:
    """A cluster may be all GPU nodes, and its taints keep the Pod out."""
    (pool,) = strategies.policies()["one taint"].pools
    everywhere = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
    nodes = NodeIndex(Node(name, {**pool.node_selector, **everywhere}) for name in ("a", "b"))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"nodeSelector": everywhere, "containers": [{"name": "web", "image": "web"}]},
    }
    policy = strategies.policies()["one taint"]
    assert decide(pod, policy, facts=Facts(nodes=nodes)).findings == ()
    nodes.update(Node("plain", {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}))
    assert [f.path for f in decide(pod, policy, facts=Facts(nodes=nodes)).findings] == [
        "spec.nodeSelector"
    ]
    # The operating system alone selects no GPU nodes: many Pods name it.
    pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}  # type: ignore[index]
    assert decide(pod, policy, facts=Facts(nodes=nodes)).findings == ()

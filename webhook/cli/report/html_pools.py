"""The picture of the pools: the devices of each node, and the Pods that hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.audit.pools import PoolNode, PoolState
from webhook.cli.report.audit_results import pool_summary
from webhook.cli.report.html_page import Number, Section, badge
from webhook.cli.report.markup import Markup, element, joined
from webhook.wording import counted

_SHADES = 6
_BAR = 100
_TIMES = "\N{MULTIPLICATION SIGN}"

_LEGEND = (
    ("held", "1", "held; the number is that of the Pod below"),
    ("free", "", "free"),
    ("over", "!", "held beyond what the node offers"),
)


def numbers(states: Sequence[PoolState], judged: int) -> list[Number]:
    """Return the figures for the top of the page."""
    unfenced = {n.name for s in states for n in s.nodes.values() if not n.has_taint}
    return [
        Number(judged, "running Pods"),
        Number(sum(state.free for state in states), "devices free"),
        Number(sum(state.trespassers for state in states), "trespassers", bad=True),
        Number(len(unfenced), "GPU nodes without taint", bad=True),
    ]


def section(states: Sequence[PoolState]) -> Section:
    """Return the section with all pools."""
    legend = element("ul", *_legend(), class_="legend", aria_label="Legend")
    return Section("pools", "Pools", joined([legend, *(_pool(state) for state in states)]))


def _legend() -> Iterator[Markup]:
    for kind, sign, words in _LEGEND:
        yield element("li", element("i", sign, class_=f"device {kind}", aria_hidden="true"), words)
    yield element("li", badge("▲ trespasser", "enforce"), "a Pod that requests no device")


def _pool(state: PoolState) -> Markup:
    name = state.pool.name
    cards = [_node(node) for node in state.nodes.values()]
    none = element("p", "The cluster has no node of this pool.", class_="none")
    return element(
        "div",
        element("h3", f"Pool {name}"),
        element("p", pool_summary(state), class_="totals"),
        _namespaces(state),
        _node_filter(name) if cards else Markup(""),
        element("ul", *cards, class_="nodes", aria_label=f"Nodes of pool {name}")
        if cards
        else none,
        class_="pool",
    )


def _namespaces(state: PoolState) -> Markup:
    if not state.by_namespace:
        return Markup("")
    heads = ("Namespace", "On nodes", "Waiting", "Share of the pool")
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", str(usage.placed)),
            element("td", str(usage.waiting)),
            element("td", _bar(usage.placed, state.allocatable)),
        )
        for name, usage in sorted(state.by_namespace.items(), key=lambda i: (-i[1].placed, i[0]))
    ]
    head = element("tr", *(element("th", heading, scope="col") for heading in heads))
    return element(
        "table",
        element("caption", f"Device requests in pool {state.pool.name}"),
        element("thead", head),
        element("tbody", *rows),
    )


def _bar(part: int, whole: int) -> Markup:
    share = min(_BAR, round(_BAR * part / whole)) if whole else 0
    picture = element(
        "svg",
        element("rect", width=_BAR, height=8, class_="track"),
        element("rect", width=share, height=8, class_="fill"),
        viewBox=f"0 0 {_BAR} 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    return joined([picture, element("span", f"{share} %")])


def _node_filter(pool: str) -> Markup:
    choices = (
        ("", "all nodes"),
        ("trespassed", "with trespassers"),
        ("unfenced", "without taint or label"),
        ("free", "with free devices"),
        ("full", "without free devices"),
    )
    options = [element("option", words, value=value) for value, words in choices]
    return element(
        "form",
        element("label", element("span", "Nodes"), element("select", *options, name="nodes")),
        element("output", ""),
        class_="nodes-filter",
        aria_label=f"Filter the nodes of pool {pool}",
        hidden=True,
    )


def _node(node: PoolNode) -> Markup:
    badges = []
    if not node.has_taint:
        badges.append(badge("no taint", "enforce"))
    if not node.has_label:
        badges.append(badge("no label", "warn"))
    if node.is_cordoned:
        badges.append(badge("cordoned", "audit"))
    states = [
        "trespassed" if node.trespassers else "",
        "unfenced" if not (node.has_taint and node.has_label) else "",
        "free" if node.free else "full",
    ]
    return element(
        "li",
        element("p", element("b", node.name), *badges, class_="head"),
        _devices(node),
        element("ol", *_holders(node), class_="holders") if node.holdings else Markup(""),
        element("ul", *_trespassers(node), class_="trespassers")
        if node.trespassers
        else Markup(""),
        class_="node trespassed" if node.trespassers else "node",
        data_is=" ".join(filter(None, states)),
    )


def _devices(node: PoolNode) -> Markup:
    if not node.offered and not node.holdings:
        return element("p", "offers no devices", class_="none")
    rows = []
    resources = dict.fromkeys([*node.offered, *node.held])
    for resource in resources:
        offered, held = node.offered.get(resource, 0), node.held.get(resource, 0)
        words = f"{offered - min(held, offered)} of {counted(offered, 'device')} free"
        rows.append(
            element(
                "div",
                element("p", element("span", resource), element("span", words), class_="resource"),
                element(
                    "div", *_cells(node, resource, offered), class_="cells", aria_hidden="true"
                ),
            )
        )
    return element("div", *rows, class_="devices")


def _cells(node: PoolNode, resource: str, offered: int) -> Iterator[Markup]:
    drawn = 0
    for number, holding in enumerate(node.holdings, 1):
        if holding.resource != resource:
            continue
        for _ in range(holding.count):
            drawn += 1
            over = " over" if drawn > offered else ""
            shade = f"device held s{number % _SHADES}{over}"
            yield element("i", str(number), class_=shade)
    for _ in range(offered - drawn):
        yield element("i", "", class_="device free")


def _holders(node: PoolNode) -> Iterator[Markup]:
    for number, holding in enumerate(node.holdings, 1):
        mark = element("i", str(number), class_=f"device held s{number % _SHADES}")
        who = f"{holding.namespace}/{holding.pod}"
        yield element(
            "li", mark, element("span", who), element("small", f"{_TIMES} {holding.count}")
        )


def _trespassers(node: PoolNode) -> Iterator[Markup]:
    for pod in node.trespassers:
        who = pod.workload.owned.full_name
        yield element("li", badge("▲ trespasser", "enforce"), element("span", who))

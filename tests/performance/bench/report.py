"""A run of the benchmarks as Markdown and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench import apiserver, cli, cli_peers, reviews, serving
from bench.results import Results, ratios
from paths import PROJECT

DOCS = PROJECT / "docs"
PAGE = DOCS / "reference" / "benchmarks.md"
PLOT = DOCS / "images" / "benchmarks-growth.png"
BEGIN, END = "<!-- begin: written by make bench -->", "<!-- end -->"


def markdown(found: Results) -> str:
    """Return the tables of what was measured."""
    sections = [_table(("the machine", ""), found.machine.items())]
    if found.engine:
        described = ((_case(name), f"{cost:.0f}") for name, cost in found.engine.items())
        sections.append("## The engine alone\n\n" + _table(("review", "µs"), described))
        parts = ((name, f"{cost:.0f}") for name, cost in found.parts.items())
        sections.append(_table(("of a GPU Pod, mutating", "µs"), parts))
    sections += _command_lines(found.cli)
    for case, by_name in found.serving.items():
        head = ("webhook", "requests/s", "p50 ms", "p99 ms", "CPU ms", "memory MiB")
        rows = [(name, *_served(served)) for name, served in by_name.items()]
        title = f"## Over TLS, {serving.CONNECTIONS} connections, one core: {_case(case)}\n\n"
        sections.append(title + _table(head, rows))
    for kind, created in found.apiserver.items():
        head_created = ("admission", "creates/s", "alone, ms", "API server's CPU ms", "all CPU ms")
        rows_created = [(name, *_created(each)) for name, each in created.items()]
        title = f"## On a real API server, {apiserver.CONNECTIONS} connections"
        sections.append(
            f"{title}: {apiserver.TITLES[kind]}\n\n{_table(head_created, rows_created)}"
        )
    if made := ratios(found):
        rows_made = ((name, f"{ratio:.2f}") for name, ratio in made.items())
        sections.append("## Ratios\n\n" + _table(("", ""), rows_made))
    return "\n\n".join(sections) + "\n"


def write(found: Results) -> None:
    """Put the tables into the page in place of the last run's, and draw the plot."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(found)}\n{END}{after}")
    if found.growth:
        plot(found)


def plot(found: Results) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(found.growth), figsize=(13, 3.2), layout="constrained")
    for axis, (what, costs) in zip(axes, found.growth.items(), strict=True):
        numbers = [int(number) for number in costs]
        axis.plot(numbers, list(costs.values()), marker="o", markersize=3)
        if what != "containers":
            axis.set_xscale("symlog" if 0 in numbers else "log")
        # Room above: a line along the edge does not look as flat as it is.
        axis.set_ylim(0, max(costs.values()) * 1.25)
        axis.set_xlabel(what)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("µs for one GPU Pod,\nmutated and judged")
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _command_lines(found: cli.Measured) -> Iterator[str]:
    for what, usages in found.checking.items():
        ours = usages[cli_peers.GPUFENCE].wall
        head = ("", "time s", "time relative to gpufence", "CPU s", "memory MiB")
        rows = (
            (
                name,
                f"{used.wall:.2f}",
                f"{used.wall / ours:.2f}",
                f"{used.cpu:.2f}",
                f"{used.memory:.0f}",
            )
            for name, used in usages.items()
        )
        shares = found.shares[what]
        yield f"## Command lines: {what}\n\n" + _table(head, rows)
        yield (
            f"Parsing YAML is {shares.parsing:.0%} of the CPU time of `gpufence check`, and "
            f"{shares.reading:.0%} with finding, opening and splitting files."
        )
    if found.start:
        starts = (
            (name, f"{used.wall * 1000:.0f}", f"{used.cpu * 1000:.0f}")
            for name, used in found.start.items()
        )
        title = "## Command lines: from the start to the verdict on one file\n\n"
        yield title + _table(("", "time ms", "CPU ms"), starts)


def _served(served: serving.Served) -> tuple[str, ...]:
    latency = (f"{served.p50:.2f}", f"{served.p99:.2f}")
    return (f"{served.rate:.0f}", *latency, f"{served.cpu:.3f}", f"{served.memory:.0f}")


def _created(created: apiserver.Created) -> tuple[str, ...]:
    cpu = (f"{created.server_cpu:.2f}", f"{created.whole_cpu:.2f}")
    return (f"{created.rate:.0f}", f"{created.alone:.2f}", *cpu)


def _case(name: str) -> str:
    case, endpoint = name.split()
    described = {str(key): text for key, text in reviews.CASES.items()}[case]
    return f"{described}, `/{endpoint}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

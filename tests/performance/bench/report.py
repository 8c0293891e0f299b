"""Writes the results of a benchmark run as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench import apiserver, cli, reviews, serving
from bench.results import Results, ratios
from paths import PROJECT

PAGE = PROJECT / "docs" / "reference" / "benchmarks.md"
BEGIN, END = "<!-- begin: written by make bench -->", "<!-- end -->"


def markdown(results: Results) -> str:
    """Return the tables of the parts that were measured."""
    sections = [table(("the machine", ""), results.machine.items())]
    if results.engine:
        cases = ((_case(name), f"{cost:.0f}") for name, cost in results.engine.items())
        sections.append("## The engine alone\n\n" + table(("review", "µs"), cases))
    sections += _command_lines(results.cli)
    for case, by_name in results.serving.items():
        header = ("webhook", "requests/s", "p50 ms", "p99 ms", "CPU ms", "memory MiB")
        rows = [(name, *_served(served)) for name, served in by_name.items()]
        title = f"## Over TLS, {serving.CONNECTIONS} connections, one core: {_case(case)}\n\n"
        sections.append(title + table(header, rows))
    for kind, created in results.apiserver.items():
        creation_header = (
            "admission",
            "creates/s",
            "alone, ms",
            "p50 ms",
            "p99 ms",
            "API server's CPU ms",
            "webhook's CPU ms",
            "all CPU ms",
            "webhook's memory MiB",
        )
        creation_rows = [(name, *_created(figures)) for name, figures in created.items()]
        title = f"## On a real API server, {apiserver.CONNECTIONS} connections"
        sections.append(
            f"{title}: {apiserver.TITLES[kind]}\n\n{table(creation_header, creation_rows)}"
        )
    if current := ratios(results):
        ratio_rows = ((name, f"{ratio:.2f}") for name, ratio in current.items())
        sections.append("## Ratios\n\n" + table(("", ""), ratio_rows))
    return "\n\n".join(sections) + "\n"


def write(results: Results) -> None:
    """Replace the tables of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n{END}{after}")


def _command_lines(results: cli.Measured) -> Iterator[str]:
    for input_name, usages in results.checking.items():
        baseline = usages[cli.GPUFENCE].wall
        header = ("", "time s", "time relative to gpufence", "CPU s", "memory MiB")
        rows = (
            (
                name,
                f"{usage.wall:.2f}",
                f"{usage.wall / baseline:.2f}",
                f"{usage.cpu:.2f}",
                f"{usage.memory:.0f}",
            )
            for name, usage in usages.items()
        )
        yield f"## Command lines: {input_name}\n\n" + table(header, rows)
    if results.start:
        starts = (
            (name, f"{usage.wall * 1000:.0f}", f"{usage.cpu * 1000:.0f}")
            for name, usage in results.start.items()
        )
        title = "## Command lines: from the start to the verdict on one file\n\n"
        yield title + table(("", "time ms", "CPU ms"), starts)


def _served(served: serving.Served) -> tuple[str, ...]:
    latency = (f"{served.p50:.2f}", f"{served.p99:.2f}")
    return (f"{served.rate:.0f}", *latency, f"{served.cpu:.3f}", f"{served.memory:.0f}")


def _created(created: apiserver.Created) -> tuple[str, ...]:
    rate, *milliseconds, memory = created
    return (f"{rate:.0f}", *(f"{each:.2f}" for each in milliseconds), f"{memory:.0f}")


def _case(name: str) -> str:
    case, endpoint = name.split()
    described = {str(key): text for key, text in reviews.CASES.items()}[case]
    return f"{described}, `/{endpoint}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

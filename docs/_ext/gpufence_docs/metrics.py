"""The metrics of a replica, from the registry that it exposes to Prometheus."""

from __future__ import annotations

from deploy import series
from gpufence_docs.tables import code, entry, table


def markdown() -> str:
    """Return a table of gpufence's own metrics."""
    registry = series.registry()
    labels = series.labels(registry)
    rows = [
        (
            "<br>".join(code(name) for name in series.names(family)),
            entry(
                family.documentation,
                family.type,
                ", ".join(code(label) for label in sorted(labels[family.name])),
            ),
        )
        for family in sorted(registry.collect(), key=lambda family: family.name)
        if family.name.startswith("gpufence_")
    ]
    return table(("metric", "description"), rows)

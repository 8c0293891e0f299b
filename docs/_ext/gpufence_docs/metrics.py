"""The metrics of replicas and of the controller, from the registries that they expose."""

from __future__ import annotations

from deploy import series
from gpufence_docs.tables import code, entry, table
from webhook.controller.metrics import ControllerMetrics


def markdown() -> str:
    """Return a table of gpufence's own metrics. A metric of both processes stands there once."""
    rows = {}
    for registry in (ControllerMetrics().registry, series.registry()):
        labels = series.labels(registry)
        for family in registry.collect():
            rows[family.name] = (
                "<br>".join(code(name) for name in series.names(family)),
                entry(
                    family.documentation,
                    family.type,
                    ", ".join(code(label) for label in sorted(labels[family.name])),
                ),
            )
    own = [rows[name] for name in sorted(rows) if name.startswith("gpufence_")]
    return table(("metric", "description"), own)

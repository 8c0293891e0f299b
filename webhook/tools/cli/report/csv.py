"""The devices of an audit as a table: what Pods hold, wait for and waste."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from webhook.tools.cli.report import json
from webhook.tools.cli.report.content import AuditReport


def audit(report: AuditReport) -> Iterator[str]:
    """Yield a header, and a line for each pool, namespace, kind and name of devices."""
    text = io.StringIO()
    columns = ("pool", "namespace", "kind", "resource", "devices", "deviceHours", "cost")
    writer = csv.DictWriter(text, (*columns, "pods", "nodes"), lineterminator="\n")
    writer.writeheader()
    for row in json.waste(report)["rows"]:
        names = {column: " ".join(row[column]) for column in ("pods", "nodes")}
        writer.writerow({**row, **names})
    yield text.getvalue()

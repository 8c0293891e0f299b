"""The libraries that gpufence installs, with their licenses, from their installed metadata."""

from __future__ import annotations

import re
from importlib.metadata import metadata

from gpufence_docs.files import ROOT
from gpufence_docs.tables import table


def markdown() -> str:
    """Return a table of the pinned libraries."""
    pinned = re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / "requirements" / "run.txt").read_text())
    return table(
        ("library", "version", "license"),
        [(name, version, license_of(name)) for name, version in pinned],
    )


def license_of(name: str) -> str:
    """Return the license that a library states, in the field of its time."""
    found = metadata(name)
    classifiers = [
        classifier.rpartition(" :: ")[2]
        for classifier in found.get_all("Classifier", [])
        if classifier.startswith("License ::")
    ]
    fields = (found.get_all("License-Expression", []), found.get_all("License", []), classifiers)
    text = next((", ".join(each) for each in fields if any(each)), "")
    if not text or "\n" in text:
        raise ValueError(f"{name} states no license in one line")
    return text

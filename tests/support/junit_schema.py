"""The schema of JUnit reports, compiled once and only where a test needs it: it takes a while."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from paths import SCHEMAS

if TYPE_CHECKING:
    from xmlschema import XMLSchema


def validate(report: str) -> None:
    """Validate a report.

    Raises:
        XMLSchemaValidationError: it is invalid.
    """
    _schema().validate(report)


@cache
def _schema() -> XMLSchema:
    from xmlschema import XMLSchema

    return XMLSchema(SCHEMAS / "junit-10.xsd")

"""What is said of the certificate that is served: what is new, and once."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.files import issue
from certs.source import FileSource
from webhook.tls import ServedCertificate

NOW = datetime.now(UTC)


def issue_into(folder: Path) -> None:
    issue(["localhost"], [], folder, NOW, leaf_lifetime=timedelta(days=90), force=True)


def test_each_change_is_said_once_however_often_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpufence")

    def said() -> list[str]:
        """Ask three times, and return what was said since the last time."""
        caplog.clear()
        for _ in range(3):
            served.poll()
        return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]

    issue_into(tmp_path)
    served = ServedCertificate(FileSource(tmp_path / "tls.crt", tmp_path / "tls.key"), lambda: NOW)
    assert said() == []
    served.load()
    assert said() == []
    (tmp_path / "tls.crt").write_text("no certificate")
    assert said() == ["WARNING certificate refused"]
    (tmp_path / "tls.crt").unlink()
    assert said() == ["WARNING certificate refused"]
    issue_into(tmp_path)
    assert said() == ["INFO certificate reloaded"]


def test_the_end_of_its_life_is_known_as_soon_as_it_is_served(tmp_path: Path) -> None:
    issue_into(tmp_path)
    served = ServedCertificate(FileSource(tmp_path / "tls.crt", tmp_path / "tls.key"), lambda: NOW)
    # What is missing has not expired: a replica without one yet says that it is starting.
    assert served.expires > NOW + timedelta(days=365_000)
    served.load()
    assert abs(served.expires - (NOW + timedelta(days=90))) < timedelta(seconds=2)

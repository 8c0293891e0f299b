"""Audits of the tests, which do not wait before they repeat a request."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.kube.pages.backoff", lambda *_: 0.0)

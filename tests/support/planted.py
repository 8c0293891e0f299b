"""Errors that tests plant into the rules of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from policies import engine
from policies.context import Context
from policies.kubernetes.pod import Pod
from policies.registry import CHECKS, MUTATIONS, Rule


def plant(monkeypatch: pytest.MonkeyPatch, rule: Rule, **functions: Any) -> None:
    """Give a rule of the engine other functions."""
    for name in ("MUTATIONS_BY_PODS", "CHECKS_BY_PODS"):
        by_pods = {
            pods: tuple(
                replace(each, **functions) if each.id == rule.id else each for each in rules
            )
            for pods, rules in getattr(engine, name).items()
        }
        monkeypatch.setattr(engine, name, by_pods)


def plant_error(monkeypatch: pytest.MonkeyPatch, rule: Rule, error: BaseException) -> None:
    """Let each function of a rule raise the error."""

    def fail(pod: Pod, context: Context) -> Iterator[Any]:
        raise error

    functions = {"changes": rule in MUTATIONS, "check": rule in CHECKS}
    plant(monkeypatch, rule, **{name: fail for name, is_own in functions.items() if is_own})

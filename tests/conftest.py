"""Fixtures of all tests: the real control plane, the oracle, and the Hypothesis profile."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

pytest_plugins = [
    "programs",
    "running",
    "controlplane.fixtures",
]

RANDOM = "GPUFENCE_RANDOM" in os.environ

settings.register_profile(
    "gpufence",
    # `make laws` sets as many as Hypothesis' own 100.
    max_examples=min(100, int(os.environ.get("GPUFENCE_LAWS", "25"))),
    # Machines are shared and noisy: time is bounded by pytest, not an example at a time.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # The examples are the same in every run, except where new ones are wanted: `make laws`.
    derandomize=not RANDOM,
    print_blob=True,
)
settings.load_profile("gpufence")
if not RANDOM:
    # Hypothesis draws from the constants of the project's modules that are imported by then, and
    # which these are depends on the tests that the worker ran before. It has no setting for it.
    providers._get_local_constants = Constants  # noqa: SLF001


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search no garbage while thousands of tests are created."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exempt what is alive by now, the tests among it, from garbage collection."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo what a test's own server made of the process's logging."""
    loggers = [logging.getLogger(name) for name in (None, "aiohttp", "gpufence")]
    before = [(each, each.level, each.propagate, list(each.handlers)) for each in loggers]
    result = yield
    for logger, level, propagate, handlers in before:
        logger.propagate = propagate
        if logger.level != level:
            logger.setLevel(level)
        for handler in [h for h in logger.handlers if h not in handlers]:
            logger.removeHandler(handler)
    return result

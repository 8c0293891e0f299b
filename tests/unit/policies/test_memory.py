"""Nothing of an object outlives its review: users choose how large its parts are."""

from __future__ import annotations

import tracemalloc

from policies.engine import decide
from reviewing import default_policy
from strategies import JSON

LONG = 1_000_000


def custom_resource_with_key(key: str) -> JSON:
    """Return a custom resource with a template below the key, as training operators have it."""
    container = {"name": "a", "image": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"roles": {key: {"template": {"spec": {"containers": [container]}}}}}
    return {"apiVersion": "example.com/v1", "kind": "Training", "spec": spec}


def test_memory_of_long_keys_in_template_paths_is_released() -> None:
    policy = default_policy()
    tracemalloc.start()
    try:
        for letter in "abcdefgh":
            decision = decide(custom_resource_with_key(letter * LONG + "~"), policy)
            assert decision.operations
        del decision
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < LONG

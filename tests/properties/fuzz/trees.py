"""Mutations of parsed JSON, which reach further than mutations of its bytes.

A mutated byte mostly breaks the syntax; a mutated tree stays a manifest, with one thing in it that
nothing else in the tests produces.
"""

from __future__ import annotations

import random
from typing import Any

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 0.5, 1e308, "", "0", "1", "-1",
    "1k", "1Ki", "0.1", "1e400", "9" * 400, "\u0000", "\u202e", "é", "\U0001f680", "a/b/c", "*",
    "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "void", "all", "Exists", "Equal", "In", "NotIn",
    "Gt", "Lt", "DoesNotExist", "NoSchedule", "NoExecute", "DaemonSet", "windows", "RuntimeDefault",
    "kube-system", "Pod", "v1", [], {}, [None], [[]], {"": None}, [{}] * 3,
)  # fmt: skip
_KEYS = (
    "spec", "template", "metadata", "containers", "initContainers", "ephemeralContainers", "limits",
    "requests", "resources", "claims", "resourceClaims", "tolerations", "affinity", "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions",
    "matchFields", "nodeSelector", "nodeName", "securityContext", "capabilities", "env", "envFrom",
    "volumes", "hostPath", "runtimeClassName", "os", "ownerReferences", "deletionTimestamp",
    "items", "kind", "apiVersion", "name", "namespace", "nvidia.com/gpu",
)  # fmt: skip
_DEEPEST = 150

Place = tuple[dict[str, Any] | list[Any], Any]


def mutated(tree: Any, chance: random.Random) -> Any:
    """Change one to four places of the tree, and return it."""
    for _ in range(chance.randint(1, 4)):
        places = list(_places(tree))
        if not places:
            return chance.choice(_ODD)
        container, key = chance.choice(places)
        _mutate(container, key, places, chance)
    return tree


def _places(tree: Any) -> list[Place]:
    """Return every member of every container."""
    found: list[Place] = []
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found += [(value, key) for key in value]
            waiting += value.values()
        elif isinstance(value, list):
            found += [(value, index) for index in range(len(value))]
            waiting += value
    return found


def _mutate(
    container: dict[str, Any] | list[Any], key: Any, places: list[Place], chance: random.Random
) -> None:
    value: Any = container[key]
    match chance.randrange(8):
        case 0:
            del container[key]
        case 1:
            container[key] = _wrapped(value, chance.choice((1, 2, _DEEPEST)))
        case 2:
            other, at = chance.choice(places)
            container[key] = _copied(other[at]) if _is_there(other, at) else None
        case 3 if isinstance(container, list):
            container.insert(chance.randint(0, len(container)), _copied(value))
        case 3 | 4 if isinstance(container, dict):
            container[chance.choice(_KEYS)] = container.pop(key)
        case 5 if isinstance(value, dict):
            value[chance.choice(_KEYS)] = _copied(chance.choice(_ODD))
        case 6 if isinstance(value, str):
            container[key] = value[: chance.randint(0, len(value))] + str(chance.choice(_ODD))
        case _:
            container[key] = _copied(chance.choice(_ODD))


def _is_there(container: dict[str, Any] | list[Any], key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def _wrapped(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def _copied(value: Any) -> Any:
    """Return a deep copy: the tree must stay one, without cycles."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value

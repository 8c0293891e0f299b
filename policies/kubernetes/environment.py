"""The environment of a container, as the kubelet makes it.

Source: ``pkg/kubelet/kubelet_pods.go``, ``makeEnvironmentVariables``, and
``third_party/forked/golang/expansion``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from policies.kubernetes.core_v1 import EnvVar

Values = dict[str, str | None]
"""The value of each variable by its name. None is a value that the Pod does not show."""

MAX_LENGTH = 4096
"""Longer values count as unknown, because references can double them with each variable."""

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
"""``$(NAME)``, or ``$$`` for a dollar sign."""


def values(env: Iterable[EnvVar]) -> Values:
    """Return the values of the variables in ``env``; the last of several variables counts.

    Unknown is a value from ``valueFrom``: an optional key that is missing leaves the variable as it
    was. A reference to a variable outside of ``env`` is unknown, too: ``envFrom`` may set it, or a
    Service.
    """
    known: Values = {}
    for variable in env:
        value = None if variable.value_from else expanded(variable.value or "", known)
        known[variable.name or ""] = value
    return known


def expanded(text: str, known: Values) -> str | None:
    """Return the text with the values of the variables that it refers to, if all are known."""
    if "$" not in text:
        return text
    parts: list[str] = []
    end = length = 0
    for match in _REFERENCE.finditer(text):
        value = "$" if match[1] is None else known.get(match[1])
        if value is None:
            return None
        parts += text[end : match.start()], value
        length += match.start() - end + len(value)
        if length > MAX_LENGTH:
            return None
        end = match.end()
    parts.append(text[end:])
    return "".join(parts)

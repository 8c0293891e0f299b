"""Names given exactly or by prefix: of resources (``nvidia.com/mig-*``), of namespaces."""

from __future__ import annotations

from collections.abc import Iterable


class NameSet:
    """A set of names, some of them open at the end."""

    __slots__ = ("exact", "prefixes")

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Make the set that ``patterns`` name: each exact, or a prefix followed by ``*``."""
        given = list(patterns)
        self.exact = frozenset(name for name in given if not name.endswith("*"))
        self.prefixes = tuple(name[:-1] for name in given if name.endswith("*"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NameSet) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash((self.exact, self.prefixes))

    def __repr__(self) -> str:
        return f"NameSet({self.patterns})"

    def __contains__(self, name: str) -> bool:
        return name in self.exact or (bool(self.prefixes) and name.startswith(self.prefixes))

    def __bool__(self) -> bool:
        return bool(self.exact or self.prefixes)

    @property
    def patterns(self) -> list[str]:
        """The names, and the prefixes followed by ``*``."""
        return [*sorted(self.exact), *(f"{prefix}*" for prefix in sorted(self.prefixes))]

    def overlap(self, other: NameSet) -> str | None:
        """Return a name or pattern that both sets hold, if there is one."""
        for name in sorted(self.exact):
            if name in other:
                return name
        for prefix in self.prefixes:
            if any(name.startswith(prefix) for name in other.exact):
                return f"{prefix}*"
            if any(p.startswith(prefix) or prefix.startswith(p) for p in other.prefixes):
                return f"{prefix}*"
        return None


NO_NAMES = NameSet()

"""Vendors of accelerators, and how their devices are called (``vendors.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from policies.kubernetes.claims import class_of_resource
from policies.kubernetes.field_types import NO_NAMES, NameSet

FILE = Path(__file__).with_suffix(".toml")

_AGENTS = "_monitoring"
"""How Intel's resources end that show the devices of a node to an agent, and reserve none."""

DEVICE_FILES = NameSet(["nvidia*", "dri", "kfd"])
"""Names below /dev that are devices whatever the vendors of the pools."""


class Vendor(msgspec.Struct, frozen=True, eq=False, rename="camel", forbid_unknown_fields=True):
    """A vendor of accelerators; the file explains the fields."""

    name: str
    resources: tuple[str, ...]
    fractional: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    device_classes: tuple[str, ...] = ()
    domain: str = ""
    variable: str = ""
    runtimes: tuple[str, ...] = ()
    device_files: tuple[str, ...] = ()
    taint: str = ""
    products: tuple[str, ...] = ()
    marks: dict[str, str] = {}
    namespaces: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    preset: str | None = None
    offered: NameSet = NO_NAMES
    """``resources`` as a set."""

    def __post_init__(self) -> None:
        defaults = {
            "domain": self.domain or self.resource.partition("/")[0],
            "taint": self.taint or self.resource,
            "offered": NameSet(self.resources),
        }
        for name, value in defaults.items():
            msgspec.structs.force_setattr(self, name, value)

    @property
    def resource(self) -> str:
        """The resource of a whole device."""
        return self.resources[0]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Every name of its devices, and of parts of them, in containers."""
        return (*self.resources, *self.fractional, *self.names)

    def offers(self, name: str) -> bool:
        """Return whether devices by this name are the vendor's."""
        return name in self.offered or class_of_resource(name) in self.device_classes


@cache
def known_vendors() -> tuple[Vendor, ...]:
    """Return the vendors of the file."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return msgspec.convert(document["vendors"], tuple[Vendor, ...])


@cache
def vendors_by_taint() -> Mapping[str, Vendor]:
    """Return the vendors by the key of their taint: of several, the first."""
    return {vendor.taint: vendor for vendor in reversed(known_vendors())}


def vendor_of(name: str) -> Vendor | None:
    """Return the vendor of a device by the name that a container requests, if it is known.

    The exact name counts before a prefix, and a longer prefix before a shorter one.
    """
    if device_class := class_of_resource(name):
        every = known_vendors()
        return next((each for each in every if device_class in each.device_classes), None)
    if name.endswith(_AGENTS):
        return None
    exact, prefixes = _by_name()
    lower = name.lower()
    return exact.get(lower) or next(
        (vendor for prefix, vendor in prefixes if lower.startswith(prefix)), None
    )


@cache
def _by_name() -> tuple[Mapping[str, Vendor], tuple[tuple[str, Vendor], ...]]:
    """Return the vendors by name, and by prefix with the longest first, in lower case."""
    patterns = {p.lower(): each for each in reversed(known_vendors()) for p in each.patterns}
    prefixes = [(p[:-1], each) for p, each in patterns.items() if p.endswith("*")]
    exact = {p: each for p, each in patterns.items() if not p.endswith("*")}
    return exact, tuple(sorted(prefixes, key=lambda item: len(item[0]), reverse=True))


def domains_of(resources: Iterable[str], device_classes: Iterable[str]) -> frozenset[str]:
    """Return the domains of the vendors of devices: nvidia.com for nvidia.com/gpu.

    A resource may be in the domain of a scheduler, and a class in that of an owner of the vendor.
    """
    of_resource, of_class = _domains()
    own = {name.partition("/")[0] for name in resources}
    classes = {*device_classes}
    found = {of_resource.get(domain, domain) for domain in own}
    found |= {".".join(name.split(".")[-2:]) for name in classes}
    return frozenset(found | {of_class[name] for name in classes & of_class.keys()})


@cache
def _domains() -> tuple[Mapping[str, str], Mapping[str, str]]:
    every = known_vendors()
    return (
        {p.partition("/")[0]: each.domain for each in every for p in each.patterns},
        {name: each.domain for each in every for name in each.device_classes},
    )


def domains_of_vendors() -> frozenset[str]:
    """Return the domains of all vendors."""
    return frozenset(vendor.domain for vendor in known_vendors())


def variables_of(domains: Iterable[str]) -> Mapping[str, str]:
    """Return the variables in which the runtimes of vendors read device numbers, with domains."""
    own = {*domains}
    return {v.variable: v.domain for v in known_vendors() if v.variable and v.domain in own}


def is_shown_by(variable: str, resource: str) -> bool:
    """Return whether a device plugin sets the variable for a device of the resource."""
    return any(v.variable == variable and resource in v.offered for v in known_vendors())


def runtimes_of(domains: Iterable[str]) -> Mapping[str, str]:
    """Return the variables of vendors by the container runtimes that read them."""
    own = {*domains}
    return {name: v.variable for v in known_vendors() if v.domain in own for name in v.runtimes}


def device_files_of(domains: Iterable[str], *, always: NameSet = DEVICE_FILES) -> tuple[str, ...]:
    """Return what a path of a device file of the vendors contains, if it ends with a slash.

    An exact name ends with a slash: ``/dev/dri/``, and ``/dev/nvidia``.
    """
    own = {*domains}
    files = {p for each in known_vendors() if each.domain in own for p in each.device_files}
    return tuple(
        f"/dev/{p[:-1]}" if p.endswith("*") else f"/dev/{p}/"
        for p in sorted({*always.patterns, *files})
    )

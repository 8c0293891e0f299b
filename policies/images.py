"""What container images need of the user that runs them (``images.toml``)."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

_FILE = Path(__file__).with_name("images.toml")
_LONGEST = 512
"""A longer name is not looked up. A repository has up to 255 characters, and a digest 71."""


class Image(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An image by the end of its name; the file explains the fields."""

    name: str
    needs: Literal["any", "home", "user", "root"]
    why: str
    source: str
    user: int | None = None
    fs_group: int | None = None
    variables: tuple[str, ...] = ("HOME", "USER")

    @property
    def remediation(self) -> str:
        """What the author of a Pod can set."""
        if self.needs == "root":
            return "Use an image that is built for non-root users"
        if self.needs == "user":
            group = "" if self.fs_group is None else f" and fsGroup: {self.fs_group}"
            return f"Set runAsUser: {self.user}{group} in the Pod's securityContext"
        name = " and USER to any name" if "USER" in self.variables else ""
        home = f"Mount an emptyDir, and set the variable HOME to its path{name}"
        other = f". Or set runAsUser: {self.user}, if the image has this user" if self.user else ""
        return f"{home}{other}"


@cache
def known_images() -> tuple[Image, ...]:
    """Return the images of the file."""
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return msgspec.convert(document["images"], tuple[Image, ...])


def known_image(name: str) -> Image | None:
    """Return what is known of an image: ``registry/repository:tag@digest``."""
    return _known_image(name) if len(name) <= _LONGEST else None


@lru_cache(maxsize=1024)
def _known_image(name: str) -> Image | None:
    tagged = f"/{name.partition('@')[0]}"
    directory, slash, last = tagged.rpartition("/")
    repository = f"{directory}{slash}{last.partition(':')[0]}"
    for known in known_images():
        if fnmatchcase(tagged if ":" in known.name else repository, f"*/{known.name}"):
            return known
    return None

"""The known images, from the file that the rule needs-root reads."""

from __future__ import annotations

from gpufence_docs.tables import code, entry, plain, table
from policies.images import Image, known_images

_REMEDIES = {
    "any": "runs",
    "home": "runs with `hardening.home`",
    "root": "`hardening: {level: baseline}`, which allows root",
}


def markdown() -> str:
    """Return a table of the images: what they need, what gpufence does about it, and the source."""
    rows = [
        (code(each.name), each.needs, _remedy(each), entry(plain(each.why), plain(each.source)))
        for each in known_images()
    ]
    return table(("image", "needs", "as user 65532", "why, and the source"), rows)


def _remedy(image: Image) -> str:
    group = "" if image.fs_group is None else f", fsGroup: {image.fs_group}"
    own = f"`hardening: {{runAsUser: {image.user}{group}}}`"
    return _REMEDIES.get(image.needs, own)

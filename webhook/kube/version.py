"""The version of Kubernetes that an API server has."""

from __future__ import annotations

import re

import msgspec

from webhook.kube.client import SECONDS, KubeApi, decoded
from webhook.kube.errors import UnexpectedAnswerError

PATH = "/version"
"""Every account may read it (ClusterRole ``system:public-info-viewer``)."""


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that are read of ``k8s.io/apimachinery/pkg/version.Info``."""

    minor: str = ""
    emulation_minor: str = ""
    """Set if the API server behaves as an older version (KEP-4330)."""


_decoder = msgspec.json.Decoder(_Info)


async def minor_version(api: KubeApi) -> int:
    """Return the minor version of Kubernetes 1.x that the API server behaves as.

    Raises:
        ClusterError: it cannot be read.
    """
    info = decoded(await api.get(PATH, seconds=SECONDS), PATH, _decoder)
    # Providers write 33+ for a version of their own.
    found = re.match(r"\d{1,4}", info.emulation_minor or info.minor)
    if found is None:
        raise UnexpectedAnswerError(f"{PATH} has no minor version")
    return int(found[0])

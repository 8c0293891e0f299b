"""The doctor: whether an installation works, and how to fix it.

``installation`` reads what the account may read, ``checks`` and ``registered`` judge it, and
``trials`` and ``device_access`` try Pods. Functions that send requests raise ClusterError
(``webhook.kube.errors``) if one fails.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail", "skip"]
"""Works; works, but with a risk; broken; could not be checked."""

STATUSES: tuple[Status, ...] = ("ok", "warn", "fail", "skip")


class DoctorLine(NamedTuple):
    """The result of a check in words, and what to do."""

    status: Status
    check: str
    detail: str
    remediation: str = ""


# The results of a check, to which its caller adds the name.
ok = partial(DoctorLine, "ok", "")
warn = partial(DoctorLine, "warn", "")
fail = partial(DoctorLine, "fail", "")
skip = partial(DoctorLine, "skip", "")

"""The doctor: whether an installation works, and how to fix it.

``installation`` reads what the account may read. ``checks`` names each check, and judges the
cluster and the policy. ``processes``, ``rights``, ``registered`` and ``others`` judge what runs,
what it may do, what API servers know of it, and what else they call. ``trials`` tries Pods.
Functions that send requests raise ClusterError (``webhook.kube.errors``) if one fails.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail", "unknown", "skip"]
"""Works; works, but with a risk; broken; may be broken, and could not be checked; does not apply.
"""

STATUSES: tuple[Status, ...] = ("ok", "warn", "fail", "unknown", "skip")
FAULTS: frozenset[Status] = frozenset({"fail", "unknown"})
"""With one of these, the doctor does not end with exit status 0."""


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
unknown = partial(DoctorLine, "unknown", "")
skip = partial(DoctorLine, "skip", "")

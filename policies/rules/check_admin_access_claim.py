"""Pod with administrative access to the devices of other Pods."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod

ID = "admin-access-claim"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim of the Pod with administrative access."""
    for named in context.claims(pod):
        if named.claim is not None and named.claim.admin_access:
            yield Finding(
                ID,
                named.path,
                "the Pod has administrative access to devices of other Pods",
                f"claim {named.claim_name} sets adminAccess: true, so its devices may belong to "
                "other Pods",
                "Remove adminAccess from the claim, unless the Pod monitors devices",
            )

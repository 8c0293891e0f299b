"""GPU Pod that tolerates the taints of broken devices or of nodes in quarantine."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import is_wildcard, reached_taint

ID = "tolerated-device-taint"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim or toleration of the Pod that covers such a taint."""
    for named in context.claims(pod):
        if named.claim is not None and named.claim.tolerates_taints:
            yield Finding(
                ID,
                named.path,
                "the Pod may get a device that is tainted",
                f"claim {named.claim_name} sets tolerations, so its device may be broken or "
                "reserved",
                "Remove tolerations from the claim, unless the Pod tests devices",
            )
    quarantine = context.policy.quarantine_taints
    for index, toleration in enumerate(pod.spec.tolerations or ()):
        taint = reached_taint(toleration, quarantine)
        if taint is None:
            continue
        of_all = is_wildcard(toleration)
        what = "every taint" if of_all else "the taint"
        others = ", or name the taints that the Pod needs to tolerate" if of_all else ""
        yield Finding(
            ID,
            pod.at(f"spec.tolerations[{index}]"),
            "the Pod may run on a node in quarantine",
            f"the toleration covers {what}{' and so' if of_all else ''} {taint}, which nodes have "
            "while they start or are under repair",
            f"Remove the toleration{others}",
        )

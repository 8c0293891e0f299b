"""Words that rules and admission policies share: names, clauses and remediation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from policies.device_injection import VISIBLE_DEVICES
from policies.kubernetes.scheduling import Alternative
from policies.kubernetes.selector import negated
from policies.policy import Policy, Pool
from policies.vendors import device_files_of, runtimes_of, variables_of
from policies.wording import listing, uncapitalized

LACK = "the Pod requests no GPU"
TOLERATION = "remove the toleration"
SELECTION = "remove the node selection"

SHOWS_GPUS = "which shows it GPUs, but it requests none"
ONLY_CLAIMS = "but it has only claims, whose devices need no variable"
IN_PLACE = "whichever device the scheduler assigns"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Source: kubernetes-sigs/kueue, ``pkg/controller/constants``, QueueLabel."""


class Copy(NamedTuple):
    """The Pods with a label that get the tolerations or the node of another Pod."""

    label: str
    value: str
    """Empty for every value."""
    what: str
    setting: str = ""
    """How to do without them."""

    def advice(self, namespace: str) -> str:
        """Return what to do: who denies the copy must not take the placement from the other Pod."""
        start = f"{self.setting}, or have" if self.setting else "Have"
        return (
            f"{start} the cluster administrator add an exception for it in namespace {namespace}. "
            f"{self.what} copies the placement of a GPU Pod, which must keep its toleration"
        )


COPIES = (
    Copy(
        "app.kubernetes.io/component",
        "affinity-assistant",
        "The affinity assistant of Tekton",
        "Set coschedule: disabled in Tekton's ConfigMap feature-flags",
    ),
    Copy("app.kubernetes.io/created-by", "volsync", "The data mover of VolSync"),
    Copy("app", "containerized-data-importer", "The importer of KubeVirt"),
    Copy("kubevirt.io", "hotplug-disk", "The attachment Pod of a KubeVirt volume"),
    Copy("k8up.io/type", "", "The backup Job of K8up"),
    Copy("velero.io/data-upload", "", "The data mover of Velero"),
    Copy("velero.io/data-download", "", "The data mover of Velero"),
)


def describe_pools(pools: Iterable[Pool]) -> str:
    """Return the names of pools, for messages: ``pool a100``, or ``pools a100 and h100``."""
    names = [pool.name for pool in pools]
    return f"pool{'s' if len(names) > 1 else ''} {listing(names)}"


def tolerates(pools: Iterable[Pool]) -> str:
    """Return the clause about a toleration of the pools' taint."""
    return f"the toleration lets the Pod run on GPU nodes ({describe_pools(pools)})"


def selects(pools: Iterable[Pool]) -> str:
    """Return the clause about a node selection that names the pools' labels."""
    return f"the node selection places the Pod on GPU nodes ({describe_pools(pools)})"


def wildcard_remediation(pools: Collection[Pool]) -> str:
    """Return what to do about a toleration of every taint."""
    if not pools or not all(pool.selector for pool in pools):
        return "Name the taints that the Pod needs to tolerate"
    exclusions = listing(dict.fromkeys(map(exclusion, pools)))
    return (
        "Name the taints that the Pod needs to tolerate, or exclude GPU nodes with "
        f"{exclusions} in every term of the required node affinity"
    )


def request_or(remove: str, pools: Iterable[Pool]) -> str:
    """Return the remediation of a Pod that may use the nodes of one of the pools with a request."""
    likeliest = min(pools, key=lambda pool: not pool.resources.exact)
    return f"{likeliest.request}, or {remove}"


def exclusion(pool: Pool, kept: Pool | None = None) -> str:
    """Return an expression with which a term accepts no node of the pool, and some of ``kept``."""
    ways = [negated(each) for each in pool.requirements]
    fitting = (way for way in ways if kept and kept.can_meet(Alternative({}, (way,), (), "")))
    way = next(fitting, ways[0])
    # Nodes without the label meet NotIn, too.
    values = f", values: {json.dumps(way.values)}" if way.values else ""
    return f"{{key: {way.key}, operator: {way.operator}{values}}}"


@lru_cache(maxsize=16)
def visible_devices_variables(policy: Policy) -> tuple[str, ...]:
    """Return the variables that show devices: NVIDIA's, and those of the pools' vendors."""
    return tuple(dict.fromkeys((VISIBLE_DEVICES, *variables_of(policy.vendors))))


@lru_cache(maxsize=16)
def device_files(policy: Policy) -> tuple[str, ...]:
    """Return what the path of a device file of the pools' vendors contains: ``/dev/nvidia``."""
    return device_files_of(policy.vendors)


@lru_cache(maxsize=16)
def runtime_variables(policy: Policy) -> Mapping[str, str]:
    """Return the variables by container runtime: NVIDIA's, and those of the pools' vendors."""
    return runtimes_of({"nvidia.com", *policy.vendors})


def variable_remediation(name: str, policy: Policy, otherwise: str = "") -> str:
    """Return what to do about a variable that shows the devices of a vendor.

    Without the variable, that of the image counts.
    """
    of_vendor = variables_of(policy.vendors).get(name)
    pools = [pool for pool in policy.pools if of_vendor in pool.vendors]
    return f"{(pools or policy.pools)[0].request}, or {otherwise or f'set {name} to void'}"


def agent_remediation(otherwise: str) -> str:
    """Return what to do about a DaemonSet that sees the devices of its nodes."""
    return (
        "If the DaemonSet monitors or prepares the GPUs of its nodes, exempt its namespace in "
        f"the policy (exemptions.namespaces). Otherwise {otherwise}"
    )


def volume_remediation(policy: Policy) -> str:
    """Return what to do about a volume with device files."""
    request = uncapitalized(policy.pools[0].request)
    return (
        f"Remove the volume, and {request} unless the container has it: it then gets the files of "
        "its device"
    )

"""The DaemonSets of the GPU stack, and the GPU nodes that they cannot run on.

Labels and devices of a node come from DaemonSets: feature discovery, a driver, a device plugin.
If one of them does not tolerate the taint of the nodes, it wants no Pod there, and reports no
error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint, tolerates
from policies.policy import Policy
from policies.reach import nodes_of_pools
from policies.wording import counted, some

_STACK = re.compile(
    r"nvidia|gpu|dcgm|node-feature-discovery|/nfd|amdgpu|rocm|habana|gaudi|device-plugin|dra-driver"
)
# The DaemonSet controller tolerates the taints of a node's state.
_STATE = "node.kubernetes.io/"


def unreached(agent: Pod, name: str, policy: Policy, nodes: NodeIndex) -> Iterator[str]:
    """Yield a sentence for each taint that keeps a DaemonSet of the stack off nodes of a pool."""
    images = [container.spec.image or "" for container in agent.containers]
    if not any(map(_STACK.search, images)):
        return
    known, selected = nodes_of_pools(policy, nodes), agent.selected_nodes(nodes).all
    kept_off: dict[tuple[str, Taint], list[str]] = {}
    for pool in policy.pools:
        for node in nodes.nodes(known.of(pool) & selected):
            for taint in node.taints:
                if _keeps_off(taint, agent):
                    kept_off.setdefault((pool.name, taint), []).append(node.name)
    for (pool_name, taint), names in kept_off.items():
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        yield (
            f"DaemonSet {name} does not tolerate {taint}, so it does not run on "
            f"{counted(len(names), 'node')} of pool {pool_name} ({some(names)}); add "
            f"{json.dumps(toleration)} to its tolerations"
        )


def _keeps_off(taint: Taint, agent: Pod) -> bool:
    if taint.effect not in FENCING_EFFECTS or taint.key.startswith(_STATE):
        return False
    return not any(tolerates(each, taint) for each in agent.spec.tolerations or ())

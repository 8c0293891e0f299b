"""``gpufence policy diff`` and a real API server: the examples are decided as it says."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import running
from in_tree import create_runtime_class
from specs import JSON
from unit.cli.policy_diff.test_comparison import comparison, specs
from webhook.tools.cli.policy_diff.comparison import Example

SHOWN = [
    "pools.resources",
    "pools.sharedResources",
    "pools.taints.key",
    "pools.nodeSelector",
    "pools.matchExpressions.values",
    "pools.allowedNamespaces.names",
    "pools.hardening.level",
    "pools.largestRequest",
    "pools.requires.labels",
    "pools.requires.maxRuntime",
    "rules",
    "exemptions.namespaces",
    "overrides.namespaces",
    "exceptions.kinds",
]
TRIED = SHOWN if int(os.environ.get("GPUFENCE_LAWS", "0")) > 500 else ["pools.taints.key"]


@pytest.mark.slow("registers two policies for each change")
def test_the_api_server_decides_on_the_examples_as_it_says(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    for name in ("ml", "team-x", "lab", "legacy", "test", "tools", "dev-x"):
        with suppress(ApiError):
            obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            control_plane.api.request("POST", "/api/v1/namespaces", obj)
    for name in ("gvisor", "nvidia"):
        create_runtime_class(control_plane, name)
    found = {name: [*filter(is_alone, comparison(name).examples)] for name in TRIED}
    tally, wrong = Counter[str](), []
    # All changes are of the same policy.
    policies = {"": specs(TRIED[0])[0], **{name: specs(name)[1] for name in TRIED}}
    for name, policy in policies.items():
        # Dates as JSON has them. This test's user is the admin that the policy exempts.
        spec = json.loads(json.dumps(policy, default=str))
        spec["exemptions"].pop("usernames", None)
        with running(control_plane, tmp_path / (name or "base"), spec) as fence, fence.registered():
            for own, examples in found.items():
                for each in examples if name in ("", own) else ():
                    said = each.after if name else each.before
                    answer = sent(control_plane, each.objects[-1])
                    tally[answer] += 1
                    if answer in ("allowed", "denied") and (answer == "denied") != (
                        said == "denied"
                    ):
                        wrong.append((own, name, answer, each.name))
    print(f"\n{len(TRIED)} changes: {dict(tally)}")
    assert not wrong
    assert {"allowed", "denied"} <= tally.keys()


def is_alone(example: Example) -> bool:
    """Return whether the Pod needs no other object or user."""
    return len(example.objects) == 1 and "of user" not in example.name


def sent(cluster: ControlPlane, obj: JSON) -> str:
    """Create the object (dry run), and return whether gpufence allows it."""
    version, kinds = obj["apiVersion"], f"{obj['kind'].lower()}s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = obj["metadata"].get("namespace", "default")
    try:
        cluster.api.request("POST", f"{root}/namespaces/{namespace}/{kinds}?dryRun=All", obj)
    except ApiError as error:
        return "denied" if 'gpufence.dev" denied the request' in str(error) else "invalid"
    return "allowed"

"""An upgrade from an earlier checkout, back, and forth again, while GPU Pods are created.

`make upgrade FROM=v0.3.0` runs it: the chart and the program of that commit come first.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from controlplane.objects import RESTRICTED
from controlplane.poll import until
from controlplane.webhooks import wait_until_called
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Object
from deploy.installation import OPTIONS, Installation
from deploy.kubelet import EARLIER, wait_ready
from paths import CHART, PROJECT
from release.load import GPU_POD, Load
from webhook.active_policy import PATH as FENCE_POLICIES

SOURCE = os.environ.get("GPUFENCE_EARLIER", "")
pytestmark = [
    pytest.mark.skipif(not SOURCE, reason="make upgrade names an earlier checkout"),
    pytest.mark.skipif(bool(kubelet.unavailable()), reason="no network namespaces here"),
]
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


def test_no_gpu_pod_fails_during_upgrade_rollback_and_upgrade(installable: Installation) -> None:
    api, kubectl = installable.cluster.api, installable.cluster.kubectl

    def helm(action: str, *arguments: str) -> None:
        installable.helm(action, RELEASE, *arguments, "--namespace", NAMESPACE)

    def chart(source: Path) -> tuple[str, ...]:
        image = EARLIER if source != PROJECT else "gpufence"
        path = str(source / CHART.relative_to(PROJECT))
        return (path, f"--set=image.repository={image}", *OPTIONS[2:])

    def state() -> tuple[str, Object]:
        """Return what is stored of the policy, and check its status, the CA and the webhooks."""
        stored = api.request("GET", f"{FENCE_POLICIES}/{RELEASE}")
        conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
        assert conditions["Accepted"] == "True", conditions
        # A rollback to a chart without this Secret deletes it, and the controller creates another.
        authority = base64.b64decode(api.request("GET", f"{SECRETS}/gpufence-ca")["data"]["ca.crt"])
        bundles = [
            base64.b64decode(webhook["clientConfig"]["caBundle"])
            for configuration in installable.configurations()
            for webhook in configuration["webhooks"]
        ]
        assert len(bundles) > 2
        assert all(authority.strip() in bundle for bundle in bundles)
        return stored["metadata"]["uid"], stored["spec"]

    installable.cluster.create_namespace(NAMESPACE, RESTRICTED)
    helm("install", *chart(Path(SOURCE)))
    wait_ready(installable.kubelet, 3)
    installable.wait_rolled_out()
    wait_until_called(installable.cluster, created=True)
    before, counts = state(), {}
    upgrade = ("upgrade", *chart(PROJECT), "--reset-then-reuse-values", "--take-ownership")
    steps = {"upgrade": upgrade, "rollback": ("rollback",), "second upgrade": upgrade}
    for step, command in steps.items():
        with Load(api, "default") as load:
            if "upgrade" in step:
                kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
            helm(*command)
            installable.wait_rolled_out()
        load.check(step)
        counts[step] = load.created
        stored = state()
        assert [stored[0], stored[1]["pools"]] == [before[0], before[1]["pools"]], step
    print(json.dumps(counts))
    installable.uninstall()
    until(lambda: not installable.configurations(), "the configurations to be deleted")
    assert not installable.refusal(GPU_POD)

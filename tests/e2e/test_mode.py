"""The policy's mode on a real API server: audit changes, denies and delays nothing.

One replica serves a policy in mode audit that enforces in one namespace.
"""

from __future__ import annotations

from pathlib import Path

from controlplane.cluster import ControlPlane
from controlplane.fence import running
from controlplane.objects import TOLERATION, pod
from controlplane.poll import until
from specs import default_spec

PODS = "/api/v1/namespaces/{}/pods"


def test_only_the_namespace_with_mode_enforce_is_fenced_and_waits_for_a_replica(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    api, gpu_pod, trespasser = control_plane.api, pod({"nvidia.com/gpu": 1}), pod()
    trespasser["spec"]["tolerations"] = [TOLERATION]
    audited, enforced = (
        PODS.format(control_plane.create_namespace(f"{name}-")) for name in ("audited", "enforced")
    )
    spec = default_spec() | {"mode": "audit"}
    # The probe for active webhooks is created in the namespace default.
    namespaces = [enforced.split("/")[4], "default"]
    spec["overrides"] = [{"namespaces": namespaces, "mode": "enforce"}]
    with running(control_plane, tmp_path, spec) as fence, fence.registered():
        stored = [
            api.request("POST", f"{path}?dryRun=All", gpu_pod)["spec"]
            for path in (audited, enforced)
        ]
        assert [TOLERATION in spec["tolerations"] for spec in stored] == [False, True]
        assert ["affinity" in spec for spec in stored] == [False, True]
        assert not api.refusal(audited, trespasser)
        assert "pool-trespass" in api.refusal(enforced, trespasser)
        recorded = 'gpufence_findings_total{action="would_enforce",rule="pool-trespass"}'
        assert fence.server.metric(recorded) >= 1

        fence.register("https://127.0.0.1:1")
        try:
            waits = "failed calling webhook"
            until(lambda: waits in api.refusal(enforced, gpu_pod), "the outage")
            assert not api.refusal(audited, gpu_pod)
        finally:
            fence.register()

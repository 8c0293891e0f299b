"""The second line in the form that an API server reads from its disk (KEP-5793, beta in 1.37)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import yaml

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.versions import STATIC_ADMISSION
from controlplane.webhooks import in_tree_denial
from running import run_here

NAME = "gpufence-pool-trespass.static.k8s.io"


@STATIC_ADMISSION
def test_an_api_server_enforces_static_admission_policies_from_disk(
    found_binaries: dict[str, Path], tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    printed = run_here("manifests", "--admission-policies", "--static")
    (manifests / "gpufence.yaml").write_text(printed.out)
    plugin = {
        "name": "ValidatingAdmissionPolicy",
        "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyConfiguration",
            "staticManifestsDir": str(manifests),
        },
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [plugin],
    }
    file = tmp_path / "admission.yaml"
    file.write_text(yaml.safe_dump(configuration))
    flags = (
        f"--admission-control-config-file={file}",
        "--feature-gates=ManifestBasedAdmissionControlConfig=true",
        # No controller creates service accounts.
        "--disable-admission-plugins=ServiceAccount",
    )
    with closing(
        ControlPlane(tmp_path / "plane", found_binaries, apiserver_flags=flags)
    ) as cluster:
        cluster.etcd.start()
        cluster.start_apiserver()
        until(lambda: f"'{NAME}'" in in_tree_denial(cluster.api), "the static policy")
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        assert not cluster.api.request("GET", path)["items"]
        # The API cannot delete them.
        with pytest.raises(ApiError):
            cluster.api.request("DELETE", f"{path}/{NAME}")

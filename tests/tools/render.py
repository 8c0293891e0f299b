"""Renders deploy/install.yaml from the chart with helm: `make render` runs it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml

from controlplane.errors import ControlPlaneError
from deploy.chart import Helm, HelmError, binary
from generate import write
from paths import CHART, DEPLOY

INSTALL = DEPLOY / "install.yaml"
HEADER = """\
# gpufence {version} without Helm:
#
#   kubectl apply --server-side -f fencepolicies.yaml
#   until kubectl get fencepolicies; do sleep 1; done
#   kubectl apply --server-side -f install.yaml
#
# fencepolicies.yaml (helm/gpufence/crds) defines the kind of the policy in this file: kubectl
# applies no object of a kind that is not served yet.
#
# Written by `make render` from the chart in helm/gpufence with its default values; change those.
"""


def install_text(helm: Helm, image: str = "", digest: str = "") -> str:
    """Return install.yaml: the chart with its default values, and this image if one is given."""
    named = {"image": {"repository": image, "digest": digest}} if image else {}
    chart = helm.text({"createNamespace": True, **named})
    number = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    return HEADER.format(version=number) + chart


def main() -> int:
    """Write install.yaml if it is out of date; return the exit code."""
    with tempfile.TemporaryDirectory() as home:
        try:
            write(INSTALL, install_text(Helm(binary(), Path(home))))
        except (ControlPlaneError, HelmError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

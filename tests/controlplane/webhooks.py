"""Registers a webhook with an API server, from the same manifest that the README shows."""

from __future__ import annotations

import base64
import re
import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from controlplane.api import Api, ApiError
from controlplane.poll import until

if TYPE_CHECKING:
    from controlplane.cluster import ControlPlane

CALLS = re.compile(
    r'^apiserver_admission_webhook_request_total\{[^}]*\bname="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE
)
GPU = {"limits": {"nvidia.com/gpu": "1"}}
GPU_POD = {
    "metadata": {"generateName": "probe-"},
    "spec": {"containers": [{"name": "probe", "image": "probe", "resources": GPU}]},
}
TEMPLATE = Path(__file__).parents[2] / "deploy" / "samples" / "webhook-configuration.yaml"


def configurations(url: str, ca_pem: bytes) -> list[dict[str, Any]]:
    """Return the mutating and the validating configuration for a webhook at `url`.

    `url` is scheme, host and port, e.g. `https://127.0.0.1:9443`; `ca_pem` the authority of its
    certificate.
    """
    return list(yaml.safe_load_all(rendered(url, ca_pem)))


def rendered(url: str, ca_pem: bytes) -> str:
    """Return the manifest with its placeholders filled in, as envsubst would print it."""
    values = {"WEBHOOK_URL": url, "CA_BUNDLE": base64.b64encode(ca_pem).decode()}
    return string.Template(TEMPLATE.read_text()).substitute(values)


def register(cluster: ControlPlane, url: str, ca_pem: bytes, within: float = 15.0) -> None:
    """Apply both configurations in place of any older ones, and wait until they are in force.

    Raises:
        TimeoutError: the API server does not get through to the webhook; the message says why.
    """
    unregister(cluster)
    wanted = configurations(url, ca_pem)
    cluster.kubectl.apply(*wanted)
    names = {webhook["name"] for each in wanted for webhook in each["webhooks"]}
    probe = Probe(cluster.api)
    try:
        until(lambda: names <= probe.called(), "the API server to call both webhooks", within)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; a Pod's creation was answered: {probe.answer}") from error


def unregister(cluster: ControlPlane) -> None:
    """Delete both configurations, and wait until they are no longer in force."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    gone = cluster.kubectl("delete", kinds, "gpufence", "--ignore-not-found")
    if gone.stdout:
        probe = Probe(cluster.api)
        until(lambda: not probe.called(), "the API server to forget the webhooks", within=15)


class Probe:
    """Finds out which webhooks the API server calls now: it learns of changes a moment later."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.answer = ""
        """What the last creation was answered with."""

    def called(self) -> set[str]:
        """Return the names of the webhooks that are called when a GPU Pod is created (dry-run)."""
        before = self._counts()
        try:
            self._api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", GPU_POD)
            self.answer = "created"
        except ApiError as error:
            self.answer = str(error)
        after = self._counts()
        return {name for name, count in after.items() if count > before.get(name, 0)}

    def _counts(self) -> dict[str, float]:
        counts: dict[str, float] = {}
        for name, count in CALLS.findall(self._api.text("/metrics")):
            counts[name] = counts.get(name, 0) + float(count)
        return counts

"""Webhooks at an API server: applied, called, and forgotten."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from controlplane.api import Api, ApiError
from controlplane.poll import until

if TYPE_CHECKING:
    from controlplane.cluster import ControlPlane

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CALLS = "apiserver_admission_webhook_request_total"
SERIES = re.compile(rf"^{CALLS}\{{(?P<labels>.*)\}} (?P<count>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
BOTH = frozenset({"admit", "validating"})
"""The API server's words for its two kinds of webhooks (k8s.io/apiserver, admission/metrics)."""
GPU = {"limits": {"nvidia.com/gpu": "1"}}
GPU_POD = {
    "metadata": {"generateName": "probe-"},
    "spec": {
        "containers": [{"name": "probe", "image": "probe", "resources": GPU}],
        "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
    },
}
"""Because of its toleration, the API server never mutates it without a webhook."""


def apply(api: Api, wanted: Iterable[dict[str, Any]]) -> None:
    """Apply webhook configurations."""
    for obj in wanted:
        path = f"{ADMISSION}/{obj['kind'].lower()}s/{obj['metadata']['name']}"
        query = "?fieldManager=test&force=true"
        api.request("PATCH", path + query, obj, "application/apply-patch+yaml")


def wait_until_called(cluster: ControlPlane, *, created: bool = False) -> None:
    """Wait until the API server calls both webhooks: it notices new ones with a delay.

    With `created`, also wait until a GPU Pod can be created, with what the webhooks answer.

    Raises:
        TimeoutError: it does not; the message has the outcome of creating a Pod.
    """
    probe = Probe(cluster.api)
    try:
        until(
            lambda: probe.called() == BOTH and (probe.outcome == "created" or not created),
            "the API server to call both webhooks",
        )
    except TimeoutError as error:
        raise TimeoutError(f"{error}; creating a Pod: {probe.outcome}") from error


def unregister(cluster: ControlPlane) -> None:
    """Delete configurations and admission policies, and wait until none is active."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        try:
            path = f"{ADMISSION}/{kind}/gpufence"
            cluster.api.request("DELETE", path)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
    delete_admission_policies(cluster.api)
    # Wait even if they are deleted already: the API server may not have noticed.
    probe = Probe(cluster.api)
    until(lambda: not probe.called(), "the API server to forget the webhooks")


def delete_admission_policies(api: Api) -> None:
    """Delete the admission policies of a release, and wait until none is active."""
    for collection in ("admissionpolicybindings", "admissionpolicies"):
        for kind in ("mutating", "validating"):
            path = f"{ADMISSION}/{kind}{collection}"
            with suppress(ApiError):
                for policy in api.request("GET", path)["items"]:
                    if policy["metadata"]["name"].startswith("gpufence-"):
                        api.request("DELETE", f"{path}/{policy['metadata']['name']}")
    until(lambda: "gpufence-" not in in_tree_denial(api), "the API server to forget the policies")


def in_tree_denial(api: Api) -> str:
    """Return the message that denies a trespassing Pod (dry run); empty if it is admitted."""
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    trespasser = {
        "metadata": {"generateName": "probe-"},
        "spec": {
            "containers": [{"name": "probe", "image": "probe"}],
            "tolerations": [toleration],
        },
    }
    return api.refusal("/api/v1/namespaces/default/pods", trespasser)


class Probe:
    """Determines which kinds of gpufence's webhooks the API server calls."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._counted = calls(api.text("/metrics"))
        self.outcome = ""
        """The outcome of the last create."""

    def called(self) -> set[str]:
        """Create a GPU Pod (dry-run), and return the kinds (see BOTH) that were called since."""
        try:
            self._api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", GPU_POD)
            self.outcome = "created"
        except ApiError as error:
            self.outcome = str(error)
        before, self._counted = self._counted, calls(self._api.text("/metrics"))
        return {kind for kind, _ in self._counted - before}


def calls(metrics: str) -> Counter[tuple[str, str]]:
    """Return the calls of gpufence's webhooks by kind and name, from /metrics."""
    counts: Counter[tuple[str, str]] = Counter()
    # Search only this metric: /metrics has megabytes.
    start = metrics.find(f"# TYPE {CALLS} ")
    end = metrics.find("\n# HELP ", start)
    for series in SERIES.finditer(metrics, max(start, 0), end if start >= 0 else 0):
        labels = dict(LABEL.findall(series["labels"]))
        if labels["name"].endswith(".gpufence.dev"):
            counts[labels["type"], labels["name"]] += int(float(series["count"]))
    return counts

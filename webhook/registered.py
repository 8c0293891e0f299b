"""The webhook configurations by which API servers call gpufence, as a cluster has them."""

from __future__ import annotations

import base64
import binascii

from policies.kubernetes.objects import JSONObject

API_VERSION = "admissionregistration.k8s.io/v1"
KINDS = {
    kind: f"/apis/{API_VERSION}/{kind.lower()}s"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
"""The kinds of configurations, and where the API has them."""

DOMAIN = ".gpufence.dev"
"""The suffix of the names of gpufence's webhooks, which no other webhook has."""


def is_own(name: str | None) -> bool:
    """Return whether a webhook of that name is gpufence's, of whichever policy or version."""
    return (name or "").endswith(DOMAIN)


def bundles(configuration: JSONObject) -> dict[str, bytes]:
    """Return the caBundle (PEM) of each webhook of gpufence; empty if it has none, or no base64."""
    return {
        webhook["name"]: _decoded((webhook.get("clientConfig") or {}).get("caBundle") or "")
        for webhook in configuration.get("webhooks") or ()
        if is_own(webhook.get("name"))
    }


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""

"""How a webhook configuration in the cluster differs from the one that is wanted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.kubernetes.objects import JSONObject
from webhook.registration.configurations import DOMAIN


def drift(desired: JSONObject, live: JSONObject) -> list[str]:
    """Return what differs, a clause each; nothing if all is as wanted.

    The webhooks of gpufence must be exactly as wanted: an additional match condition or selector
    would let Pods past, and an additional webhook is a remainder of an earlier policy. Additional
    labels, annotations and webhooks of others are no drift, and neither is a caBundle where none is
    wanted (cert-manager injects it).
    """
    return [
        *metadata_drift(desired["metadata"], live.get("metadata") or {}),
        *_webhooks(desired, live),
    ]


def repaired(desired: JSONObject, live: JSONObject) -> JSONObject:
    """Return ``found`` with gpufence's part as wanted, and everything else unchanged."""
    before = {webhook.get("name"): webhook for webhook in live.get("webhooks") or ()}
    webhooks = [
        _with_bundle(webhook, before.get(webhook["name"])) for webhook in desired["webhooks"]
    ]
    return {
        **live,
        "metadata": with_metadata(desired["metadata"], live.get("metadata") or {}),
        "webhooks": [*webhooks, *(w for name, w in before.items() if not is_own(name))],
    }


def with_metadata(desired: JSONObject, live: JSONObject) -> JSONObject:
    """Return the metadata that are found, with what is wanted of them."""
    metadata = {**live}
    for key, value in desired.items():
        metadata[key] = {**(metadata.get(key) or {}), **value} if isinstance(value, dict) else value
    return metadata


def bundles(configuration: JSONObject) -> Iterator[str]:
    """Yield the caBundle (base64) of each webhook of a configuration."""
    for webhook in configuration.get("webhooks") or ():
        yield (webhook.get("clientConfig") or {}).get("caBundle") or ""


def is_own(name: str | None) -> bool:
    """Return whether a webhook of that name is gpufence's, of whichever policy or version."""
    return (name or "").endswith(DOMAIN)


def metadata_drift(desired: JSONObject, live: JSONObject) -> Iterator[str]:
    """Yield which labels, annotations and owners differ, a clause each."""
    for part in ("labels", "annotations"):
        present = live.get(part) or {}
        for key, value in (desired.get(part) or {}).items():
            if present.get(key) != value:
                yield f"{part[:-1]} {key} is {present.get(key)!r}"
    owners = [owner.get("uid") for owner in live.get("ownerReferences") or ()]
    for owner in desired.get("ownerReferences") or ():
        if owner["uid"] not in owners:
            yield f"it is not owned by {owner['kind']} {owner['name']}"


def _webhooks(desired: JSONObject, live: JSONObject) -> Iterator[str]:
    present = {webhook.get("name"): webhook for webhook in live.get("webhooks") or ()}
    for webhook in desired["webhooks"]:
        name = webhook["name"]
        if name not in present:
            yield f"webhook {name} is missing"
            continue
        target = _with_bundle(webhook, present[name])
        for field in sorted({*target, *present[name]}):
            if target.get(field) != present[name].get(field):
                yield f"{field} of webhook {name} differs"
    names = {webhook["name"] for webhook in desired["webhooks"]}
    for name in present:
        if name not in names and is_own(name):
            yield f"webhook {name} is not wanted"


def _with_bundle(webhook: JSONObject, live: Any) -> JSONObject:
    """Return the webhook with the caBundle that is there, where none is wanted."""
    config = webhook["clientConfig"]
    bundle = ((live or {}).get("clientConfig") or {}).get("caBundle")
    if "caBundle" in config or not bundle:
        return webhook
    return {**webhook, "clientConfig": {**config, "caBundle": bundle}}

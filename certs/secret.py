"""The Secret with authority and leaf, as JSON of the API.

This module does not talk to an API server: it reads and returns Secrets as dicts.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any

from certs.keypair import KeyPair, is_certificate
from certs.succession import Stored

JSONObject = dict[str, Any]

PROMOTED_AT = "gpufence.dev/authority-promoted-at"
"""The annotation with the time when the old authority stopped signing (RFC 3339)."""

# Keys of the Secret, without the endings .crt and .key of a pair. Those of the leaf are what the
# type kubernetes.io/tls requires.
_AUTHORITY, _LEAF, _NEXT, _OLD = "ca", "tls", "next-ca", "old-ca"
_OURS = frozenset(
    f"{name}.{ending}" for name in (_AUTHORITY, _LEAF, _NEXT, _OLD) for ending in ("crt", "key")
)


def read_secret(secret: JSONObject) -> Stored | None:
    """Return the content of a Secret; None if one of the four parts is missing.

    Parts that do not parse are returned as they are: `plan` handles them.
    """
    data = secret.get("data") or {}
    authority, leaf = _pair(data, _AUTHORITY), _pair(data, _LEAF)
    if authority is None or leaf is None:
        return None
    annotations = (secret.get("metadata") or {}).get("annotations") or {}
    return Stored(
        authority=authority,
        leaf=leaf,
        next=_pair(data, _NEXT),
        old=_decode(data, f"{_OLD}.crt"),
        promoted=_time(annotations.get(PROMOTED_AT)),
    )


def read_served(secret: JSONObject) -> Stored | None:
    """Return the pair and the CA of a Secret that cert-manager writes, without the key of the CA.

    None if it has no usable pair, or no CA.
    """
    data = secret.get("data") or {}
    leaf, authority = _pair(data, _LEAF), _decode(data, f"{_AUTHORITY}.crt")
    if leaf is None or not is_certificate(authority) or not is_certificate(leaf.certificate_pem):
        return None
    return Stored(authority=KeyPair(authority, b""), leaf=leaf)


def write_secret(stored: Stored, name: str, namespace: str, live: JSONObject | None) -> JSONObject:
    """Return the Secret to write: `live` with its resourceVersion and its other fields.

    Without an existing one, it is a Secret to create.
    """
    secret = dict(live or {"type": "kubernetes.io/tls"})
    metadata = {**(secret.get("metadata") or {}), "name": name, "namespace": namespace}
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(PROMOTED_AT, None)
    if stored.promoted is not None:
        annotations[PROMOTED_AT] = stored.promoted.isoformat()
    if annotations or "annotations" in metadata:
        metadata["annotations"] = annotations
    parts = {
        **_parts(_AUTHORITY, stored.authority),
        **_parts(_LEAF, stored.leaf),
        **(_parts(_NEXT, stored.next) if stored.next else {}),
        **({f"{_OLD}.crt": stored.old} if stored.old else {}),
    }
    data = {key: value for key, value in (secret.get("data") or {}).items() if key not in _OURS}
    data |= {key: base64.b64encode(pem).decode("ascii") for key, pem in parts.items()}
    return {**secret, "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _parts(name: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{name}.crt": pair.certificate_pem, f"{name}.key": pair.key_pem}


def _pair(data: JSONObject, name: str) -> KeyPair | None:
    pair = KeyPair(_decode(data, f"{name}.crt"), _decode(data, f"{name}.key"))
    return pair if pair.certificate_pem and pair.key_pem else None


def _decode(data: JSONObject, key: str) -> bytes:
    """Return an entry; empty if it is not base64, which the API server does not accept."""
    try:
        return base64.b64decode(data.get(key) or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return b""


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time if time is None or time.tzinfo else None

"""The two Secrets of the built-in CA: the CA with its key, and the pair that replicas serve.

Everything in here is plain data, and the time is passed in.

One rule makes every rotation safe: a CA signs what replicas serve only once callers trust it. So a
new CA may replace the one in its Secret at any time. The serving pair, with the certificate of the
CA that signed it, stays in the other Secret until then, and callers trust both CAs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509

from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME
from certs.keypair import (
    KeyPair,
    age_problem,
    certificates_in,
    is_issued_by,
    leaf_problem,
    pair_problem,
)

JSONObject = dict[str, Any]

CA_CERTIFICATE = "ca.crt"
"""The key of the CA's certificate: in its own Secret, and next to the pair that it signed."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Lifetimes, and the durations of a rotation.

    `settle` is how long every configuration must have carried a CA before it signs: API servers
    learn of a new configuration by watching. `overlap` is how long callers trust a CA that no
    longer signs: a kubelet updates the files of a replica up to two minutes after the Secret.
    """

    authority: timedelta = AUTHORITY_LIFETIME
    leaf: timedelta = LEAF_LIFETIME
    settle: timedelta = timedelta(seconds=30)
    overlap: timedelta = timedelta(hours=1)


def authority_problem(authority: KeyPair | None, now: datetime) -> str:
    """Return why a new CA is due; empty if it is not."""
    if authority is None:
        return "the Secret contains no CA"
    return pair_problem(authority, now, "CA") or age_problem(authority.certificate, now)


def serving_problem(secret: JSONObject | None, authority: KeyPair, name: str, now: datetime) -> str:
    """Return why the CA is to sign a new serving certificate; empty if it is not."""
    leaf = read_leaf(secret)
    if leaf is None:
        return "the Secret contains no serving certificate"
    problem = leaf_problem(leaf, [authority.certificate_pem], name, now)
    if not problem and read_certificate(secret) != authority.certificate_pem:
        problem = f"{CA_CERTIFICATE} is not the CA that signed the serving certificate"
    return problem or age_problem(leaf.certificate, now)


def read_authority(secret: JSONObject | None) -> KeyPair | None:
    """Return the CA in its Secret; None if a part is missing. It may not parse."""
    return _pair(secret, CA_CERTIFICATE, "ca.key")


def read_leaf(secret: JSONObject | None) -> KeyPair | None:
    """Return the serving pair in its Secret; None if a part is missing. It may not parse."""
    return _pair(secret, "tls.crt", "tls.key")


def read_certificate(secret: JSONObject | None) -> bytes:
    """Return PEM of the CA in either Secret; empty if there is none."""
    return _decoded(secret, CA_CERTIFICATE)


def read_signer(secret: JSONObject | None) -> x509.Certificate | None:
    """Return the CA that signed the serving pair, from the same Secret; None if it has none."""
    leaf = read_leaf(secret)
    served = certificates_in(leaf.certificate_pem) if leaf else ()
    authorities = certificates_in(read_certificate(secret))
    return next((ca for ca in authorities if served and is_issued_by(served[0], ca)), None)


def authority_data(authority: KeyPair) -> dict[str, bytes]:
    """Return the content of the Secret with the CA."""
    return {CA_CERTIFICATE: authority.certificate_pem, "ca.key": authority.key_pem}


def serving_data(leaf: KeyPair, authority: KeyPair) -> dict[str, bytes]:
    """Return the content of the Secret that replicas mount, as cert-manager writes it."""
    return {
        "tls.crt": leaf.certificate_pem,
        "tls.key": leaf.key_pem,
        CA_CERTIFICATE: authority.certificate_pem,
    }


def with_data(secret: JSONObject, data: Mapping[str, bytes]) -> JSONObject:
    """Return the Secret with the content, and other keys as they are."""
    encoded = {key: base64.b64encode(pem).decode("ascii") for key, pem in data.items()}
    return {**secret, "data": {**(secret.get("data") or {}), **encoded}}


def _pair(secret: JSONObject | None, certificate: str, key: str) -> KeyPair | None:
    pair = KeyPair(_decoded(secret, certificate), _decoded(secret, key))
    return pair if pair.certificate_pem and pair.key_pem else None


def _decoded(secret: JSONObject | None, key: str) -> bytes:
    """Return an entry; empty if it is not base64, which the API server does not accept."""
    data = (secret or {}).get("data") or {}
    try:
        return base64.b64decode(data.get(key) or "", validate=True)
    except binascii.Error:
        return b""

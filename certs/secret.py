"""The Secret with the CA and the serving certificate: its content, and the rotation of both.

Everything in here is plain data, and the time is passed in. Any number of replicas may take the
same step at once: each step is one write of the whole Secret, which the API server rejects if it is
based on an older version.

A rotation of the CA leaves no moment in which a caller trusts neither:

1. `PUBLISH`: the next CA is created next to the one that signs; callers are to trust both.
2. `PROMOTE`: once every webhook configuration has carried both for a while, the next one takes over
   and signs a new serving certificate. The old CA stays published; its key is gone.
3. `RETIRE`: once every replica has had the time to load the new certificate, the old CA is dropped.
"""

from __future__ import annotations

import base64
import binascii
import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from certs import CertificateError
from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME, create_authority, issue_leaf
from certs.keypair import (
    KeyPair,
    Names,
    age_problem,
    is_certificate,
    leaf_problem,
    names_of,
    pair_problem,
    parse_certificates,
)

JSONObject = dict[str, Any]

PROMOTED_AT = "gpufence.dev/authority-promoted-at"
"""The annotation with the time when the old CA stopped signing (RFC 3339)."""

# Keys of the Secret, without the endings .crt and .key of a pair. Those of the leaf are what the
# type kubernetes.io/tls requires.
_AUTHORITY, _LEAF, _NEXT, _OLD = "ca", "tls", "next-ca", "old-ca"
_OURS = frozenset(
    f"{name}.{ending}" for name in (_AUTHORITY, _LEAF, _NEXT, _OLD) for ending in ("crt", "key")
)


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of the Secret. `old` is PEM of a CA that no longer signs."""

    authority: KeyPair
    leaf: KeyPair
    next: KeyPair | None = None
    old: bytes = b""
    promoted: datetime | None = None

    @property
    def authorities(self) -> tuple[bytes, ...]:
        """PEM of every CA that callers must trust, without those that do not parse.

        An API server stores a bundle without any certificate, and then reaches no webhook.
        """
        candidates = (self.old, self.authority.certificate_pem, self.next_certificate)
        return tuple(pem for pem in candidates if is_certificate(pem))

    @property
    def bundle(self) -> bytes:
        """The CAs as one PEM document, for `caBundle`."""
        return b"".join(pem.rstrip(b"\n") + b"\n" for pem in self.authorities)

    @property
    def next_certificate(self) -> bytes:
        return self.next.certificate_pem if self.next else b""

    def is_carried_by(self, bundle: bytes) -> bool:
        """Return whether a client that trusts `bundle` (PEM) trusts every CA."""
        try:
            trusted = parse_certificates(bundle, "bundle")
        except CertificateError:
            return False
        own = [parse_certificates(pem, "CA")[0] for pem in self.authorities]
        return bool(own) and all(certificate in trusted for certificate in own)

    def can_sign(self, now: datetime) -> bool:
        """Return whether the CA can sign at that time."""
        return not pair_problem(self.authority, now)

    def can_serve(self, now: datetime) -> bool:
        """Return whether callers that trust the CA accept the leaf at that time."""
        try:
            return not leaf_problem(self.leaf, [self.authority.certificate_pem], None, now)
        except CertificateError:
            return False


@dataclass(frozen=True, slots=True)
class Timing:
    """Lifetimes, and the duration of each step of a rotation.

    `settle` is how long every configuration must have carried the next CA before it signs: API
    servers learn of a new configuration by watching. `overlap` is how long the old one stays
    published after that: replicas learn of a new leaf by polling.
    """

    authority: timedelta = AUTHORITY_LIFETIME
    leaf: timedelta = LEAF_LIFETIME
    settle: timedelta = timedelta(seconds=30)
    overlap: timedelta = timedelta(hours=1)


class Change(enum.StrEnum):
    """A change of the Secret."""

    CREATE = "create"
    RENEW = "renew-leaf"
    PUBLISH = "publish-next-authority"
    PROMOTE = "promote-next-authority"
    RETIRE = "retire-old-authority"


@dataclass(frozen=True, slots=True)
class Step:
    """A change that is due, its reason for the log, and what the Secret then holds."""

    change: Change
    reason: str
    after: Stored


def next_step(
    stored: Stored | None,
    names: Names,
    now: datetime,
    timing: Timing,
    carried_for: timedelta | None = None,
) -> Step | None:
    """Return the next step, with the keys that it needs; None if nothing is due.

    `carried_for` says for how long every webhook configuration has carried all of
    `stored.authorities`; None if one does not, or if it is unknown.
    """
    if stored is None:
        reason = "the Secret contains no CA and no serving certificate yet"
        return Step(Change.CREATE, reason, _created(names, now, timing))
    ca_problem = pair_problem(stored.authority, now, "CA")
    following = stored.next if stored.next and not pair_problem(stored.next, now) else None
    # The key of a CA may be gone while its leaf still serves: then there is time for a rotation.
    lost = ""
    if ca_problem and not stored.can_serve(now):
        lost = f"{ca_problem}, and its serving certificate is unusable too"
    if lost and following is None:
        return Step(Change.CREATE, lost, _created(names, now, timing))
    if not ca_problem and (reason := _leaf_due(stored, names, now)):
        return Step(Change.RENEW, reason, _renewed(stored, names, now, timing))
    if following is not None:
        if not lost and (carried_for is None or carried_for < timing.settle):
            return None
        after = Stored(
            authority=following,
            leaf=issue_leaf(following, names, now, timing.leaf),
            old=stored.authority.certificate_pem,
            promoted=now,
        )
        reason = lost or "every webhook configuration trusts both CAs"
        return Step(Change.PROMOTE, reason, after)
    if reason := ca_problem or age_problem(stored.authority.certificate, now):
        after = replace(stored, next=create_authority(now, timing.authority))
        return Step(Change.PUBLISH, reason, after)
    if stored.old and (stored.promoted is None or now >= stored.promoted + timing.overlap):
        reason = "every replica has had time to load the new serving certificate"
        return Step(Change.RETIRE, reason, replace(stored, old=b"", promoted=None))
    return None


def _created(names: Names, now: datetime, timing: Timing) -> Stored:
    authority = create_authority(now, timing.authority)
    return Stored(authority, issue_leaf(authority, names, now, timing.leaf))


def _renewed(stored: Stored, names: Names, now: datetime, timing: Timing) -> Stored:
    """Return what is stored with a new leaf.

    If only names are missing, it keeps the present names, too. In the upgrade that renames the
    Service, two replicas want different names, and would otherwise undo each other's leaf.
    """
    if not _leaf_due(stored, None, now):
        names = names.and_those_of(names_of(stored.leaf.certificate))
    return replace(stored, leaf=issue_leaf(stored.authority, names, now, timing.leaf))


def _leaf_due(stored: Stored, names: Names | None, now: datetime) -> str:
    current = [stored.authority.certificate_pem]
    problem = leaf_problem(stored.leaf, current, names, now)
    return problem or age_problem(stored.leaf.certificate, now)


def read_secret(secret: JSONObject) -> Stored | None:
    """Return the content of a Secret; None if one of the four parts is missing.

    Parts that do not parse are returned as they are: `next_step` handles them.
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

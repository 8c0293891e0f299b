"""The authority and the leaf in a Secret: what is in it, and how it changes over the years.

Everything in here is plain data: Secrets are dicts as the API's JSON has them, the time is passed
in, and whoever calls does the talking to the API server. Any number of replicas may follow the same
plan at once: each change is one write of the whole Secret, which the API server refuses to whoever
read it before another's write (`metadata.resourceVersion`).

An authority is succeeded without a moment in which a caller trusts neither:

1. `PUBLISH`: the next authority is created beside the one that signs; both are published.
2. `PROMOTE`: once every webhook configuration has carried both for a while, the next one takes over
   and signs a new leaf. The old certificate stays published; its key is gone.
3. `RETIRE`: once every replica has had the time to take up the new leaf, the old one is dropped.
"""

from __future__ import annotations

import base64
import binascii
import enum
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME, create_authority, issue_leaf
from certs.errors import MaterialError
from certs.keypair import KeyPair, check_validity, parse_certificates, parse_pair
from certs.renewal import authority_needs_renewal, is_issued_by, needs_renewal

if TYPE_CHECKING:
    from certs.names import Names

JSONObject = dict[str, Any]

PROMOTED_AT = "gpufence.dev/authority-promoted-at"
"""The annotation that says since when the old authority no longer signs (RFC 3339)."""

# Keys of the Secret, without the endings .crt and .key of a pair. Those of the leaf are what the
# type kubernetes.io/tls asks for.
_AUTHORITY, _LEAF, _NEXT, _OLD = "ca", "tls", "next-ca", "old-ca"
_OURS = frozenset(
    f"{name}.{ending}" for name in (_AUTHORITY, _LEAF, _NEXT, _OLD) for ending in ("crt", "key")
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the Secret holds. ``old`` is PEM of an authority that signs no more."""

    authority: KeyPair
    leaf: KeyPair
    next: KeyPair | None = None
    old: bytes = b""
    promoted: datetime | None = None

    @property
    def authorities(self) -> tuple[bytes, ...]:
        """PEM of every authority that callers are to trust; those that do not parse are left out.

        An API server refuses a whole configuration for one of those.
        """
        candidates = (self.old, self.authority.certificate_pem, self.next_certificate)
        return tuple(pem for pem in candidates if _parses(pem))

    @property
    def bundle(self) -> bytes:
        """The authorities as one PEM document: what `caBundle` is to carry."""
        return b"".join(pem.rstrip(b"\n") + b"\n" for pem in self.authorities)

    def is_carried_by(self, bundle: bytes) -> bool:
        """Tell whether whoever trusts ``bundle`` (PEM) trusts all of the authorities."""
        try:
            trusted = set(parse_certificates(bundle, "bundle"))
        except MaterialError:
            return False
        return all(parse_certificates(pem, "authority")[0] in trusted for pem in self.authorities)

    @property
    def next_certificate(self) -> bytes:
        return self.next.certificate_pem if self.next else b""


@dataclass(frozen=True, slots=True)
class Timing:
    """Lifetimes, and how long each step of a rotation is given.

    ``settle`` is how long every configuration must have carried the next authority before it signs:
    API servers learn of a new configuration by watching. ``overlap`` is how long the old one stays
    published after that: replicas learn of a new leaf by polling.
    """

    authority: timedelta = AUTHORITY_LIFETIME
    leaf: timedelta = LEAF_LIFETIME
    settle: timedelta = timedelta(seconds=30)
    overlap: timedelta = timedelta(hours=1)


class Change(enum.StrEnum):
    """What is to be done with the Secret."""

    NOTHING = "nothing"
    CREATE = "create"
    RENEW = "renew-leaf"
    PUBLISH = "publish-next-authority"
    PROMOTE = "promote-next-authority"
    RETIRE = "retire-old-authority"


@dataclass(frozen=True, slots=True)
class Plan:
    """The next change, and the reason for it in words for logs and status pages."""

    change: Change
    reason: str


def plan(
    stored: Stored | None,
    names: Names,
    now: datetime,
    timing: Timing,
    carried_for: timedelta | None = None,
) -> Plan:
    """Decide on the next change; `carry_out` makes it.

    `carried_for` says for how long every webhook configuration has carried all of
    `stored.authorities`; None where one does not, or where nobody looked.
    """
    if stored is None:
        return Plan(Change.CREATE, "the Secret holds no authority and no leaf yet")
    authority = authority_needs_renewal(stored.authority, now)
    current = [pem for pem in (stored.authority.certificate_pem,) if _parses(pem)]
    leaf = needs_renewal(stored.leaf, current, names, now)
    next_can_sign = stored.next is not None and _can_sign(stored.next, now)
    if not _can_sign(stored.authority, now):
        # Its key may be gone while its leaf still serves: then there is time for a succession.
        if not _is_live(stored, now):
            change = Change.PROMOTE if next_can_sign else Change.CREATE
            return Plan(change, f"{authority.reason}, and its leaf is of no use either")
    elif leaf.needed:
        return Plan(Change.RENEW, leaf.reason)
    if next_can_sign:
        if carried_for is None:
            return Plan(
                Change.NOTHING, "waiting for every webhook configuration to carry both authorities"
            )
        if carried_for < timing.settle:
            return Plan(Change.NOTHING, "waiting for API servers to learn of the next authority")
        return Plan(Change.PROMOTE, "every webhook configuration carries both authorities")
    if authority.needed:
        return Plan(Change.PUBLISH, authority.reason)
    if stored.old:
        end = (stored.promoted or datetime.min.replace(tzinfo=UTC)) + timing.overlap
        if now >= end:
            return Plan(Change.RETIRE, "every replica has had the time to take up the new leaf")
        return Plan(Change.NOTHING, f"the old authority stays published until {end.isoformat()}")
    return Plan(Change.NOTHING, leaf.reason)


def carry_out(
    change: Change, stored: Stored | None, names: Names, now: datetime, timing: Timing
) -> Stored:
    """Return what the Secret is to hold after the change; keys are made here."""
    if stored is None or change is Change.CREATE:
        authority = create_authority(now, timing.authority)
        return Stored(authority, issue_leaf(authority, names, now, timing.leaf))
    match change:
        case Change.RENEW:
            return replace(stored, leaf=issue_leaf(stored.authority, names, now, timing.leaf))
        case Change.PUBLISH:
            return replace(stored, next=create_authority(now, timing.authority))
        case Change.PROMOTE if stored.next is not None:
            return Stored(
                authority=stored.next,
                leaf=issue_leaf(stored.next, names, now, timing.leaf),
                old=stored.authority.certificate_pem,
                promoted=now,
            )
        case Change.RETIRE:
            return replace(stored, old=b"", promoted=None)
    return stored


def read_secret(secret: JSONObject) -> Stored | None:
    """Return what a Secret holds; None for one that is empty, or that lacks one of the four parts.

    Parts that do not parse are handed on as they are: `plan` says what becomes of them.
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


def write_secret(stored: Stored, name: str, namespace: str, found: JSONObject | None) -> JSONObject:
    """Return the Secret to write: `found` with its resourceVersion and whatever else is in it.

    Where nothing was found, it is one to create.
    """
    secret = dict(found or {"type": "kubernetes.io/tls"})
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
    """Return an entry; what is no base64 is as good as absent (the API server lets none in)."""
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


def _parses(pem: bytes) -> bool:
    try:
        return bool(parse_certificates(pem, "authority"))
    except MaterialError:
        return False


def _can_sign(authority: KeyPair, now: datetime) -> bool:
    try:
        check_validity(parse_pair(authority)[0], now, "authority")
    except MaterialError:
        return False
    return True


def _is_live(stored: Stored, now: datetime) -> bool:
    """Tell whether the leaf can still be served to callers that trust its authority."""
    try:
        leaf, _ = parse_pair(stored.leaf)
        check_validity(leaf, now, "serving certificate")
        [authority, *_] = parse_certificates(stored.authority.certificate_pem, "authority")
    except MaterialError:
        return False
    return is_issued_by(leaf, authority)

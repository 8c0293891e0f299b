"""The rotation of authority and leaf: which change is due, and its result.

Everything in here is plain data, and the time is passed in. What is stored lies in one Secret
(`certs.secret`), and any number of replicas may follow the same plan at once: each change is one
write of all of it, which the API server rejects if it is based on an older version.

An authority is succeeded without a moment in which a caller trusts neither:

1. `PUBLISH`: the next authority is created next to the one that signs; both are published.
2. `PROMOTE`: once every webhook configuration has carried both for a while, the next one takes over
   and signs a new leaf. The old certificate stays published; its key is gone.
3. `RETIRE`: once every replica has had the time to take up the new leaf, the old one is dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509

from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME, create_authority, issue_leaf
from certs.errors import CertificateError, MaterialError
from certs.keypair import (
    KeyPair,
    is_certificate,
    is_usable,
    parse_certificates,
    parse_pair,
)
from certs.names import Names
from certs.renewal import authority_needs_renewal, is_issued_by, names_of, needs_renewal


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of the Secret. ``old`` is PEM of an authority that no longer signs."""

    authority: KeyPair
    leaf: KeyPair
    next: KeyPair | None = None
    old: bytes = b""
    promoted: datetime | None = None

    @property
    def authorities(self) -> tuple[bytes, ...]:
        """PEM of every authority that callers must trust, without those that do not parse.

        An API server stores a bundle without any certificate, and then reaches no webhook.
        """
        candidates = (self.old, self.authority.certificate_pem, self.next_certificate)
        return tuple(pem for pem in candidates if is_certificate(pem))

    @property
    def bundle(self) -> bytes:
        """The authorities as one PEM document, for `caBundle`."""
        return b"".join(pem.rstrip(b"\n") + b"\n" for pem in self.authorities)

    def is_carried_by(self, bundle: bytes) -> bool:
        """Return whether a client that trusts ``bundle`` (PEM) trusts every authority."""
        try:
            trusted = set(parse_certificates(bundle, "bundle"))
        except MaterialError:
            return False
        own = _certificates(self.authorities)
        return bool(own) and own <= trusted

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
    """A change of the Secret."""

    NOTHING = "nothing"
    CREATE = "create"
    RENEW = "renew-leaf"
    PUBLISH = "publish-next-authority"
    PROMOTE = "promote-next-authority"
    RETIRE = "retire-old-authority"


@dataclass(frozen=True, slots=True)
class Plan:
    """The next change, and the reason for logs and status pages."""

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
    `stored.authorities`; None if one does not, or if it is unknown.
    """
    if stored is None:
        return Plan(Change.CREATE, "the Secret contains no CA and no serving certificate yet")
    authority = authority_needs_renewal(stored.authority, now)
    current = [pem for pem in (stored.authority.certificate_pem,) if is_certificate(pem)]
    leaf = needs_renewal(stored.leaf, current, names, now)
    next_can_sign = stored.next is not None and is_usable(stored.next, now)
    if not is_usable(stored.authority, now):
        # Its key may be gone while its leaf still serves: then there is time for a succession.
        if not is_live(stored, now):
            change = Change.PROMOTE if next_can_sign else Change.CREATE
            return Plan(change, f"{authority.reason}, and its serving certificate is unusable too")
    elif leaf.needed:
        return Plan(Change.RENEW, leaf.reason)
    if next_can_sign:
        if carried_for is None:
            return Plan(Change.NOTHING, "waiting until every webhook configuration trusts both CAs")
        if carried_for < timing.settle:
            return Plan(Change.NOTHING, "waiting until API servers have seen the next CA")
        return Plan(Change.PROMOTE, "every webhook configuration trusts both CAs")
    if authority.needed:
        return Plan(Change.PUBLISH, authority.reason)
    if stored.old:
        end = (stored.promoted or datetime.min.replace(tzinfo=UTC)) + timing.overlap
        if now >= end:
            return Plan(
                Change.RETIRE, "every replica has had time to load the new serving certificate"
            )
        return Plan(Change.NOTHING, f"the old CA stays trusted until {end.isoformat()}")
    return Plan(Change.NOTHING, leaf.reason)


def stage_successor(served: Stored, other: Stored, now: datetime) -> Stored:
    """Return the Secret in which `other`'s authority succeeds the one that is served.

    It is published before it signs, as any next one. Where it cannot sign, all stays as served.
    """
    return replace(served, next=other.authority) if is_usable(other.authority, now) else served


def carry_out(
    change: Change, stored: Stored | None, names: Names, now: datetime, timing: Timing
) -> Stored:
    """Return the content of the Secret after the change; this creates keys."""
    if stored is None or change is Change.CREATE:
        authority = create_authority(now, timing.authority)
        return Stored(authority, issue_leaf(authority, names, now, timing.leaf))
    match change:
        case Change.RENEW:
            wanted = _with_others(stored, names, now)
            return replace(stored, leaf=issue_leaf(stored.authority, wanted, now, timing.leaf))
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


def _with_others(stored: Stored, names: Names, now: datetime) -> Names:
    """Return the names for a new leaf: those of the present one, too, if only names are missing.

    In the upgrade that renames the Service, two replicas want different names, and would otherwise
    undo each other's leaf for as long as it lasts.
    """
    try:
        present = names_of(parse_pair(stored.leaf)[0])
        current = [stored.authority.certificate_pem]
        if needs_renewal(stored.leaf, current, present, now).needed:
            return names
    except CertificateError:
        return names
    return Names(
        tuple(dict.fromkeys((*names.dns, *present.dns))),
        tuple(dict.fromkeys((*names.ip, *present.ip))),
    )


def is_of_use(stored: Stored, now: datetime) -> bool:
    """Return whether there is an authority that can sign, or at least a leaf to serve."""
    return is_usable(stored.authority, now) or is_live(stored, now)


def is_live(stored: Stored, now: datetime) -> bool:
    """Return whether the leaf can still be served to callers that trust its authority."""
    try:
        leaf, _ = parse_pair(stored.leaf)
        [authority, *_] = parse_certificates(stored.authority.certificate_pem, "authority")
    except MaterialError:
        return False
    return is_usable(stored.leaf, now) and is_issued_by(leaf, authority)


def _certificates(pems: Iterable[bytes]) -> frozenset[x509.Certificate]:
    """Return the first certificate of each PEM that holds one."""
    return frozenset(parse_certificates(pem, "authority")[0] for pem in pems if is_certificate(pem))

"""Key pairs as files: ca.crt, ca.key, tls.crt and tls.key in one directory.

The names are those of a Secret of type `kubernetes.io/tls` and of cert-manager, with the
key of the CA in addition.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from certs import CertificateError
from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME, create_authority, issue_leaf
from certs.keypair import KeyPair, Names


def issue(
    dns_names: Iterable[str],
    ip_addresses: Iterable[str],
    directory: Path,
    now: datetime,
    ca_lifetime: timedelta = AUTHORITY_LIFETIME,
    leaf_lifetime: timedelta = LEAF_LIFETIME,
    *,
    force: bool = False,
) -> tuple[KeyPair, KeyPair]:
    """Create a CA and a serving certificate for the names, and write both to `directory`.

    Raises CertificateError for invalid names or lifetimes, and for files that cannot be written, or
    that exist already unless `force` says to replace them.
    """
    names = Names.parse(dns_names, ip_addresses)
    if leaf_lifetime > ca_lifetime:
        raise CertificateError(
            f"is {leaf_lifetime}, longer than the {ca_lifetime} of the CA that signs it",
            where="lifetime of the serving certificate",
            cure="Use a shorter lifetime, or a longer one for the CA",
        )
    authority = create_authority(now, ca_lifetime)
    leaf = issue_leaf(authority, names, now, leaf_lifetime)
    write_pairs(directory, authority, leaf, force=force)
    return authority, leaf


def write_pairs(directory: Path, authority: KeyPair, leaf: KeyPair, *, force: bool = False) -> None:
    """Write both key pairs to `directory`, which is created if necessary.

    Keys have mode 0600 from the moment of their creation. All four files are complete on disk
    before the first takes its place. Raises CertificateError.
    """
    contents = {
        "ca.crt": authority.certificate_pem,
        "ca.key": authority.key_pem,
        "tls.crt": leaf.certificate_pem,
        "tls.key": leaf.key_pem,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        existing = [name for name in contents if os.path.lexists(directory / name)]
        if existing and not force:
            raise CertificateError(
                f"already holds {', '.join(existing)}",
                where=str(directory),
                cure="Choose another directory, or use --force to replace the CA and the serving "
                "certificate",
            )
        with tempfile.TemporaryDirectory(prefix=".gpufence-", dir=directory) as staging:
            for name, content in contents.items():
                mode = 0o600 if name.endswith(".key") else 0o644
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                with os.fdopen(os.open(Path(staging, name), flags, mode), "wb") as file:
                    file.write(content)
            for name in contents:
                Path(staging, name).replace(directory / name)
    except OSError as error:
        raise CertificateError(
            f"cannot be written ({error.strerror})",
            where=str(error.filename2 or error.filename or directory),
            cure="Choose a directory that this user may write to, on a disk with room",
        ) from error

"""Key pairs as files: ca.crt, ca.key, tls.crt and tls.key in one directory.

The names are those of a Secret of type `kubernetes.io/tls` and of cert-manager, with the
key of the authority in addition.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from certs.authority import AUTHORITY_LIFETIME, LEAF_LIFETIME, create_authority, issue_leaf
from certs.errors import RequestError, StorageError
from certs.keypair import KeyPair, check_validity, parse_certificates, parse_pair
from certs.names import Names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

AUTHORITY_CERTIFICATE = "ca.crt"
AUTHORITY_KEY = "ca.key"
LEAF_CERTIFICATE = "tls.crt"
LEAF_KEY = "tls.key"

_SECRET_MODE = 0o600
_PUBLIC_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Issued:
    """The result of `issue`: directory, key pairs, names of the leaf, and expiry times (UTC)."""

    directory: Path
    authority: KeyPair
    leaf: KeyPair
    names: Names
    authority_expires: datetime
    leaf_expires: datetime


def issue(
    dns_names: Iterable[str],
    ip_addresses: Iterable[str],
    out_dir: Path,
    now: datetime,
    ca_lifetime: timedelta = AUTHORITY_LIFETIME,
    leaf_lifetime: timedelta = LEAF_LIFETIME,
    *,
    force: bool = False,
) -> Issued:
    """Create an authority and a serving leaf for the names, and write both to `out_dir`.

    Raises RequestError for names or lifetimes that cannot be, StorageError for files that cannot be
    written, or that exist already unless `force` says to replace them.
    """
    names = Names.parse(dns_names, ip_addresses)
    if leaf_lifetime > ca_lifetime:
        raise RequestError(
            f"is {leaf_lifetime}, longer than the {ca_lifetime} of the CA that signs it",
            where="lifetime of the serving certificate",
            cure="Use a shorter lifetime, or a longer one for the CA",
        )
    authority = create_authority(now, ca_lifetime)
    leaf = issue_leaf(authority, names, now, leaf_lifetime)
    write_pairs(out_dir, authority, leaf, force=force)
    return Issued(
        directory=out_dir,
        authority=authority,
        leaf=leaf,
        names=names,
        authority_expires=_expires(authority),
        leaf_expires=_expires(leaf),
    )


def write_pairs(directory: Path, authority: KeyPair, leaf: KeyPair, *, force: bool = False) -> None:
    """Write both key pairs to `directory`, which is created if necessary.

    Keys have mode 0600 from the moment of their creation. Each file appears whole or not at all,
    and all four are complete on disk before the first takes its place; if one cannot, the others
    are put back as they were. Raises StorageError.
    """
    contents = {
        directory / AUTHORITY_CERTIFICATE: authority.certificate_pem,
        directory / AUTHORITY_KEY: authority.key_pem,
        directory / LEAF_CERTIFICATE: leaf.certificate_pem,
        directory / LEAF_KEY: leaf.key_pem,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StorageError(
            "is not a directory",
            where=str(directory),
            cure="Choose a directory, or a path that does not exist",
        ) from error
    except OSError as error:
        raise _cannot_be_written(directory, error) from error
    if not force and (existing := [path for path in contents if os.path.lexists(path)]):
        raise _already_there(existing)
    try:
        _install(contents, force=force)
    except FileExistsError as error:
        raise _already_there([Path(error.filename)]) from error
    except OSError as error:
        raise _cannot_be_written(directory, error) from error


def read_pair(certificate: Path, key: Path, now: datetime) -> KeyPair:
    """Read a key pair and check that it can be used at `now`.

    Raises StorageError for a file that cannot be read; MaterialError for what is not PEM, for a key
    that is encrypted or belongs to another certificate, for a certificate outside its life.
    """
    pair = KeyPair(certificate_pem=read_file(certificate), key_pem=read_file(key))
    first, _ = parse_pair(pair, str(certificate), str(key))
    check_validity(first, now, str(certificate))
    return pair


def read_file(path: Path) -> bytes:
    """Read a certificate or key file; raises StorageError."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise StorageError(
            "does not exist",
            where=str(path),
            cure="Check the path, or create the file with `gpufence certs issue`",
        ) from error
    except IsADirectoryError as error:
        raise StorageError(
            "is a directory",
            where=str(path),
            cure="Name the file in it, such as tls.crt or tls.key",
        ) from error
    except OSError as error:
        raise StorageError(
            f"cannot be read ({error.strerror})",
            where=str(path),
            cure="Let the user that runs gpufence read it; in a Pod, see defaultMode and fsGroup",
        ) from error


def _expires(pair: KeyPair) -> datetime:
    return parse_certificates(pair.certificate_pem, "certificate")[0].not_valid_after_utc


def _install(contents: Mapping[Path, bytes], *, force: bool) -> None:
    staged: dict[Path, Path] = {}
    touched: list[Path] = []
    before = _existing(contents) if force else {}
    try:
        for target, content in contents.items():
            staged[target] = _stage(target, content, _mode(target))
        for target, temporary in staged.items():
            if not force:
                # Exclusive, so that of two concurrent writers the second fails.
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _SECRET_MODE))
            touched.append(target)
            temporary.replace(target)
    except BaseException:
        _put_back(touched, before)
        raise
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _existing(targets: Iterable[Path]) -> dict[Path, tuple[bytes, int]]:
    """Return content and mode of the existing targets, to restore them after a failure."""
    contents: dict[Path, tuple[bytes, int]] = {}
    for target in targets:
        with contextlib.suppress(FileNotFoundError):
            contents[target] = (target.read_bytes(), target.stat().st_mode & 0o777)
    return contents


def _put_back(touched: Iterable[Path], before: Mapping[Path, tuple[bytes, int]]) -> None:
    for target in touched:
        # Report the original error.
        with contextlib.suppress(OSError):
            if target not in before:
                target.unlink()
                continue
            content, mode = before[target]
            temporary = _stage(target, content, mode)
            try:
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)


def _stage(target: Path, content: bytes, mode: int) -> Path:
    """Write `content` to a new file next to `target` and return its path."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _mode(target: Path) -> int:
    return _SECRET_MODE if target.suffix == ".key" else _PUBLIC_MODE


def _already_there(existing: Sequence[Path]) -> StorageError:
    return StorageError(
        f"already holds {', '.join(path.name for path in existing)}",
        where=str(existing[0].parent),
        cure="Choose another directory, or use --force to replace the CA and the serving "
        "certificate",
    )


def _cannot_be_written(directory: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot be written ({error.strerror})",
        where=str(error.filename2 or error.filename or directory),
        cure="Choose a directory that this user may write to, on a disk with room",
    )

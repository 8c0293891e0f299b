"""Certificates of the webhook server: issue, store and rotate them.

- `certs.keypair`    a certificate, its private key and its names: checks, and when a renewal is due
- `certs.authority`  creates the CA, and issues the serving certificate that it signs
- `certs.secret`     the Secret with CA and serving certificate, and the rotation of both

No module reads the clock: callers pass the time as an aware `datetime`.
"""

from __future__ import annotations

from pathlib import Path


class CertificateError(Exception):
    """A problem with certificates that the user can fix.

    `what` is a clause without a subject ("is encrypted"), whose subject is `where` (a path, a name,
    an option's value); `cure` is a sentence without its full stop.
    """

    def __init__(self, what: str, *, where: str, cure: str) -> None:
        super().__init__(f"{where}: {what}. {cure}.")
        self.what = what
        self.where = where


def read_file(path: Path) -> bytes:
    """Read a certificate or key file; raises CertificateError."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CertificateError("does not exist", where=str(path), cure="Check the path") from error
    except OSError as error:
        raise CertificateError(
            f"cannot be read ({error.strerror})",
            where=str(path),
            cure="Name a file that the user of gpufence may read; in a Pod, see defaultMode and "
            "fsGroup",
        ) from error

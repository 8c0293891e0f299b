"""The error of this package: it states the problem, the place and the remediation."""

from __future__ import annotations


class CertificateError(Exception):
    """A problem with certificates that the user can fix.

    `what` is a clause without a subject ("is encrypted"), whose subject is `where` (a path, a name,
    an option's value); `cure` is a sentence without its full stop.
    """

    def __init__(self, what: str, *, where: str, cure: str) -> None:
        super().__init__(f"{where}: {what}. {cure}.")
        self.what = what
        self.where = where

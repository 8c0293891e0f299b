"""The policy file of a server, which reads it again and again."""

from __future__ import annotations

from policies.compiled import Policy
from webhook.cli.errors import InputError
from webhook.cli.manifests.documents import unreadable
from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.files import STDIN, decode, read_bytes
from webhook.cli.policy_file import compiled_policy, read_policy
from webhook.cli.report.sentence import sentence
from webhook.policy_reload import FixedPolicy, PolicySource, PolicyUnusableError


def policy_source(path: str | None) -> PolicySource:
    """Return where a server's policy comes from: the file, or once and for all the default.

    Raises:
        InputError: the policy comes on standard input, and is none.
    """
    if path is None or path == STDIN:
        return FixedPolicy(compiled_policy(path))
    return PolicyFile(path)


class PolicyFile:
    """A ``PolicySource``: a policy document in a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return read_bytes(self._path)
        except ManifestError as error:
            raise self._unusable(error) from error

    def parse(self, document: bytes) -> Policy:
        try:
            return read_policy(self._path, decode(document)).compile()
        except ManifestError as error:
            raise self._unusable(error) from error
        except InputError as error:
            raise PolicyUnusableError(" ".join(error.lines)) from error

    def _unusable(self, error: ManifestError) -> PolicyUnusableError:
        return PolicyUnusableError(sentence(unreadable(self._path, error), error))

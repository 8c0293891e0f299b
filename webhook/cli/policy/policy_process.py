"""Read a policy document in a separate process.

Usage: `python -m webhook.cli.policy.policy_process NAME`.

Validation needs pydantic and its models, 9 MiB that a server would keep. This process reads the
document from standard input, writes the compiled policy or the error, and exits.
"""

from __future__ import annotations

import signal
import sys

from policies.document.shipped import encoded
from webhook.cli.errors import EXIT_INPUT
from webhook.cli.policy.policy_file import read_policy
from webhook.documents.documents import sentence, unreadable
from webhook.documents.errors import InputError, ManifestError
from webhook.documents.files import decode

LONGEST_SECONDS = 60
"""The time that a server waits for it."""

SENTENCE = ("utf-8", "surrogatepass")
"""The encoding of an error, which may quote surrogates from the document."""


def main(name: str) -> int:
    """Return 0 and write the policy, or ``EXIT_INPUT`` and one sentence, to standard output."""
    # If the server is killed, this process ends by itself and silently.
    signal.alarm(LONGEST_SECONDS + 5)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    status, answer = _answer(name, sys.stdin.buffer.read())
    sys.stdout.buffer.write(answer)
    return status


def _answer(name: str, document: bytes) -> tuple[int, bytes]:
    try:
        return 0, encoded(read_policy(name, decode(document)).compile())
    except ManifestError as error:
        fault = sentence(unreadable(name, error), error)
    except InputError as error:
        fault = " ".join(error.lines)
    return EXIT_INPUT, fault.encode(*SENTENCE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""The policy file of a server, which reloads it."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

from policies.document.shipped import decoded
from policies.policy import Policy
from webhook.cli.errors import EXIT_INPUT
from webhook.cli.policy import policy_process
from webhook.cli.policy.policy_file import compiled_policy
from webhook.documents.documents import sentence, unreadable
from webhook.documents.errors import ManifestError
from webhook.documents.files import STDIN, read_bytes
from webhook.server.policy_reload import (
    FixedPolicy,
    NoPolicyError,
    PolicySource,
    PolicyUnusableError,
)

_READER = policy_process.__name__


def policy_source(path: str | None) -> PolicySource:
    """Return the source of a server's policy: a file, or the default policy.

    Raises:
        InputError: the policy on standard input is invalid.
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
            fault = sentence(unreadable(self._path, error), error)
            raise PolicyUnusableError(fault) from error

    async def parse(self, document: bytes) -> Policy:
        return await _read_aside(self._path, document)


async def _read_aside(path: str, document: bytes) -> Policy:
    """Validate a document in a separate process, whose memory is free again afterwards.

    The process shares standard error.

    Raises:
        NoPolicyError: the document is invalid.
        PolicyUnusableError: the process fails.
    """
    # Without -P, modules in the working directory would shadow those of gpufence.
    command = (sys.executable, "-P", "-m", _READER, path)
    try:
        # A Ctrl-C in a terminal is for the server, which ends this process.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
    except OSError as error:
        problem = f"cannot be read: no process starts for it ({error.strerror or error})"
        raise PolicyUnusableError(f"{path}: {problem}. Raise the limit of processes.") from error
    try:
        async with asyncio.timeout(policy_process.LONGEST_SECONDS):
            try:
                answer, _ = await process.communicate(document)
            except RuntimeError:
                # uvloop raises this if the process ends before anything is written to it.
                answer = b""
                await process.wait()
    except TimeoutError as error:
        problem = f"is not read within {policy_process.LONGEST_SECONDS} seconds"
        raise PolicyUnusableError(
            f"{path}: {problem}. Give gpufence more CPU, or make the policy smaller."
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == EXIT_INPUT:
        raise NoPolicyError(answer.decode(*policy_process.SENTENCE))
    if process.returncode:
        ended = _describe_exit(process.returncode)
        raise PolicyUnusableError(f"{path}: the process that reads it ended with {ended}.")
    return decoded(answer)


def _describe_exit(code: int) -> str:
    """Describe an exit code, negative for a signal, and what to do."""
    if code >= 0:
        return f"exit status {code}; its messages are above"
    by = f"signal {-code} ({signal.strsignal(-code)})"
    if -code == signal.SIGKILL:
        return (
            f"{by}, probably for lack of memory. Raise the memory limit, or make the policy smaller"
        )
    return f"{by}. If no process sent it, report a bug with the lines above"

"""Access to an API server, for example by the service account of the Pod."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from webhook.kube.errors import ConfigurationError


@dataclass(frozen=True)
class Access:
    """The address of an API server, its CA, and the credentials for it."""

    host: str
    """Its address, and a prefix of all paths."""
    tls: ssl.SSLContext
    """The CA of the API server, and the client certificate, if there is one."""
    authorization: Callable[[], Awaitable[str | None]]
    """Returns the value of the Authorization header, renewed if necessary; None without one."""
    proxy: str | None = None
    server_name: str | None = None
    """The name in its certificate, if it differs from the address."""


Load = Callable[[], Awaitable[Access]]
"""Returns the access to an API server; call it again for fresh credentials.

Raises ConfigurationError.
"""

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory of a container's service account (k8s.io/client-go/rest, config.go)."""

_ADDRESS = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


def is_inside() -> bool:
    """Return whether this process runs in a Pod."""
    return _ADDRESS[0] in os.environ


def in_cluster(account: Path = ACCOUNT) -> Load:
    """Return a loader for the service account of the Pod.

    ``kubernetes.aio`` could do so as well, but its import takes 19 MiB of memory, a third of what a
    replica needs.
    """

    async def load() -> Access:
        host, port = (os.environ.get(name, "") for name in _ADDRESS)
        if not (host and port):
            raise _no_account(f"{' and '.join(_ADDRESS)} are not set")
        try:
            await authorization()
            tls = trusting(account / "ca.crt")
        except OSError as error:
            raise _no_account(f"{account}: {error}") from error
        address = f"[{host}]" if ":" in host else host
        return Access(f"https://{address}:{port}", tls, authorization)

    async def authorization() -> str:
        # Read each time: a kubelet replaces the token before it expires. The file is in memory.
        token = (account / "token").read_text().strip()
        if not token:
            raise _no_account(f"{account / 'token'} is empty")
        return f"Bearer {token}"

    return load


def _no_account(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"cannot use a service account: {problem}. In a Pod, mount the token of its service "
        "account; elsewhere, set a kubeconfig file"
    )


def trusting(authority: Path | str | None) -> ssl.SSLContext:
    """Return a TLS context; without an ``authority``, it trusts the CAs of the machine."""
    context = ssl.create_default_context(cafile=authority)
    # The CA is pinned. Python 3.13 has stricter requirements for CAs than earlier versions, and
    # those of existing clusters do not meet them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context

"""Ways to an API server: a kubeconfig, or the service account of the Pod that this runs in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cluster.errors import ConfigurationError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

Load = Callable[["Configuration"], Awaitable[None]]
"""Fills in the configuration of a client; may be called again for fresh credentials.

Raises ConfigurationError.
"""


def kubeconfig(path: Path | None = None, context: str | None = None) -> Load:
    """Return what loads a kubeconfig: ``path``, or what kubectl would take.

    That is the files in ``$KUBECONFIG``, or ``~/.kube/config``. ``context`` is the name of one of
    its contexts; ``None`` for the current one.
    """

    async def load(configuration: Configuration) -> None:
        from kubernetes.aio import config

        if path is not None and not path.is_file():  # noqa: ASYNC240 - at the start, and on 401
            raise ConfigurationError(
                f"{path}: no such file; give the path of a kubeconfig, as kubectl takes it"
            )
        try:
            await config.load_kube_config(
                config_file=None if path is None else str(path),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        except Exception as error:
            # The library raises what its parsing happens to raise: YAML's errors, its own, and
            # where a field is of another type, what only its authors can make sense of.
            is_of_types = isinstance(error, AttributeError | KeyError | TypeError)
            reason = "it is not as a kubeconfig should be" if is_of_types else error
            shown = path or config.KUBE_CONFIG_DEFAULT_LOCATION
            chosen = f", context {context}" if context else ""
            raise ConfigurationError(
                f"{shown}{chosen}: does not lead to a cluster: {reason}; "
                "see what kubectl config view and kubectl config get-contexts print"
            ) from error

    return load


def in_cluster() -> Load:
    """Return what loads the service account that Kubernetes gives to a Pod."""

    async def load(configuration: Configuration) -> None:
        from kubernetes.aio import config

        try:
            config.load_incluster_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            raise ConfigurationError(
                f"there is no service account to use: {error} Inside of a Pod, let its service "
                "account's token be mounted; outside, give a kubeconfig"
            ) from error

    return load

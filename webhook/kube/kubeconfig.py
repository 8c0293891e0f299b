"""Access to an API server by a kubeconfig, as people have it."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from policies.kubernetes.objects import mapping, mappings
from policies.wording import listing
from webhook.kube.credentials import Access, Load, in_cluster, is_inside, trusting
from webhook.kube.errors import ConfigurationError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration


_MISSING = re.compile(r"Expected object with name (\S+) in \S*/(\w+) list")
_NOISE = re.compile(r"\[Errno \d+\] ")
_MISSING_KEY = re.compile(r"Expected key (\S+) in ")
"""What the library says of a part that is missing."""


def access(path: Path | None = None, context: str | None = None) -> Load:
    """Return a loader for what the options name: by default, inside a Pod its service account."""
    is_default = path is None and context is None
    return in_cluster() if is_default and is_inside() else kubeconfig(path, context)


def kubeconfig(path: Path | None = None, context: str | None = None) -> Load:
    """Return a loader for a kubeconfig.

    Without ``path`` it loads the same files as kubectl: ``$KUBECONFIG`` or ``~/.kube/config``.
    ``context`` is the name of one of its contexts; ``None`` for the current one.
    """

    async def load() -> Access:
        try:
            from kubernetes.aio import config
            from kubernetes.aio.client import Configuration
        except ImportError as error:
            raise ConfigurationError(
                "cannot read a kubeconfig: the Kubernetes client is not installed; install "
                "gpufence with the extra kubeconfig: in a checkout, pip install '.[kubeconfig]'"
            ) from error

        files = _files(path)
        chosen = f", context {context}" if context else ""
        contexts = list(_contexts(files))
        if context and contexts and context not in contexts:
            raise ConfigurationError(
                f"{files}: has no context {context}; it has {listing(contexts)}"
            )
        configuration = Configuration()
        try:
            with _errors_from_log():
                await config.load_kube_config(
                    config_file=files,
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )
            return _configured(configuration)
        except Exception as error:
            # The library raises many types: errors of YAML, its own, and any exception for a field
            # with a wrong type.
            reason = _reason(error)
            if contexts and not context and "current-context" in reason:
                reason = f"it sets no current-context; set --context to {listing(contexts, 'or')}"
            raise ConfigurationError(
                f"{files}{chosen}: cannot be used: {reason}; "
                "see what kubectl config view and kubectl config get-contexts print"
            ) from error

    return load


def _reason(error: Exception) -> str:
    """Return what is wrong with a kubeconfig, from an error of any type of the library."""
    if isinstance(error, AttributeError | KeyError | TypeError):
        return "it is not a valid kubeconfig"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename} does not exist, or is not in PATH"
    if isinstance(error, ssl.SSLError):
        return f"its CA or client certificate is no valid PEM ({error.reason})"
    if missing := _MISSING.search(str(error)):
        return f"it has no {missing[2].removesuffix('s')} {missing[1]}"
    if missing := _MISSING_KEY.search(str(error)):
        return f"it has no {missing[1]}"
    return _NOISE.sub("", str(error)).replace("File does not exists: ", "no such file: ")


def _contexts(files: str) -> Iterator[str]:
    """Yield the names of the contexts, as far as the files are kubeconfigs.

    Raises:
        ConfigurationError: a file is not YAML.
    """
    import yaml

    for file in files.split(os.pathsep):
        try:
            with open(file, encoding="utf-8") as opened:  # noqa: PTH123 - kubectl's form of paths
                document = yaml.safe_load(opened)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise ConfigurationError(f"{file}{place}: is not YAML: {error.problem}") from error
        except (OSError, UnicodeError, yaml.YAMLError):
            continue
        for _, each in mappings(mapping(document).get("contexts")):
            yield str(each.get("name"))


@contextmanager
def _errors_from_log() -> Iterator[None]:
    """Raise an error if the library logs inside the block that a plugin returned no credentials.

    It would continue as an anonymous user.

    Raises:
        ConfigurationError: at the end of the block, with what was logged.
    """
    messages: list[str] = []

    def gather(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        messages.append(record.getMessage())
        return False

    logger = logging.getLogger("kubernetes.aio.config.kube_config")
    logger.addFilter(gather)
    try:
        yield
    finally:
        logger.removeFilter(gather)
    if messages:
        raise ConfigurationError("; ".join(messages))


def _files(path: Path | None) -> str:
    """Return the files to load, separated by colons as in ``$KUBECONFIG``.

    Raises:
        ConfigurationError: there is none.
    """
    if path is not None:
        files, cure = [str(path)], "set the path of a kubeconfig file"
    else:
        configured = os.environ.get("KUBECONFIG")
        named = (configured or "~/.kube/config").split(os.pathsep)
        files = [os.path.expanduser(file) for file in named if file]  # noqa: PTH111 - no error
        why = "KUBECONFIG names it" if configured else "kubectl looks there"
        cure = f"{why}; name another kubeconfig with --kubeconfig, or in KUBECONFIG"
    existing = [file for file in files if os.path.isfile(file)]  # noqa: PTH113 - no error
    if not existing:
        is_directory = any(map(os.path.isdir, files))
        problem = "is a directory" if is_directory else "no such file"
        raise ConfigurationError(f"{' and '.join(files)}: {problem}; {cure}")
    return os.pathsep.join(existing)


def _configured(configuration: Configuration) -> Access:
    """Return the access that ``kubernetes.aio`` has read."""
    if not configuration.host.startswith(("https://", "http://")):
        raise ConfigurationError(f"server: {configuration.host} is not a URL; write https://...")
    if configuration.verify_ssl:
        tls = trusting(configuration.ssl_ca_cert)
    else:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)

    async def authorization() -> str | None:
        value: str | None = await configuration.get_api_key_with_prefix("BearerToken")
        return value

    return Access(
        configuration.host,
        tls,
        authorization,
        proxy=configuration.proxy,
        server_name=configuration.tls_server_name,
    )

"""Options that need no other part of the command line: names, files, times, servers, clusters.

Replicas and the controller start with these alone.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from policies.kubernetes.quantity import is_subdomain

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def as_argument(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command, which receives them as one argument.

    ``make`` returns the argument; its parameters are the names of the options.
    """
    names = inspect.signature(make).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_argument(**values: Any) -> Any:
            argument = make(**{each: values.pop(each) for each in names if each in values})
            return command(**{name: argument}, **values)

        decorated: Callable[..., Any] = with_argument
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def _name(value: str) -> str:
    # A name becomes part of a URL, where a slash or a question mark would change the request.
    if not is_subdomain(value):
        raise click.BadParameter(
            f"{value!r} is not a valid name: use up to 253 lower-case letters, digits, '-' and "
            "'.', with a letter or a digit at both ends."
        )
    return value


def name_option(*names: str, text: str, default: str | None = None, **settings: Any) -> Decorator:
    """Return an option for the name of an object; ``text`` is its help, also below."""
    return click.option(
        *names,
        type=_name,
        default=default,
        show_default=default is not None,
        metavar="NAME",
        help=text,
        **settings,
    )


def namespaced_name_option(name: str, metavar: str, text: str) -> Decorator:
    """Return an option for an object in a namespace: a tuple of namespace and name."""

    def parse(value: str) -> tuple[str, str]:
        namespace, _, name = value.partition("/")
        if not namespace or not name:
            raise click.BadParameter(f"{value!r} is incomplete. Write {metavar}.")
        return _name(namespace), _name(name)

    return click.option(name, type=parse, metavar=metavar, help=text)


def path_option(name: str, text: str, *, required: bool = False) -> Decorator:
    """Return an option for a file, as a ``Path``."""
    kind = click.Path(path_type=Path)
    return click.option(name, type=kind, metavar="FILE", required=required, help=text)


def policy_path_option(text: str) -> Decorator:
    """Return --policy for a command that does not look for a policy elsewhere."""
    return click.option("--policy", "policy_path", metavar="FILE", help=text)


follow_option = name_option(
    "--fence-policy", default="gpufence", text="Name of the FencePolicy to follow in a cluster."
)

fence_policy_option = name_option(
    "--fence-policy",
    text="Name of the FencePolicy in the cluster. The default is the one that replicas follow: "
    "the webhook configurations name it.",
)


# Clusters.

kubeconfig_option = path_option(
    "--kubeconfig",
    "Path to the kubeconfig file. The default is the service account inside a Pod, and the file "
    "that kubectl uses elsewhere.",
)

context_option = click.option(
    "--context",
    metavar="NAME",
    help="Context of the kubeconfig file. The default is the current context.",
)

release_namespace_option = name_option(
    "--namespace", "-n", default="gpufence-system", text="Namespace of gpufence."
)


def release_name_option(text: str) -> Decorator:
    """Return --name: the name of a release's objects."""
    return name_option("--name", default="gpufence", text=text)


# Servers.

PORT = click.IntRange(0, 65535)

host_option = click.option(
    "--host",
    default="0.0.0.0",  # noqa: S104 - a Pod is reached on its own address
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)

metrics_port_option = click.option(
    "--metrics-port",
    type=PORT,
    default=8080,
    show_default=True,
    help="Port for /healthz, /readyz and /metrics, without TLS.",
)

configuration_name_option = name_option(
    "--name",
    "configuration_name",
    default="gpufence",
    text="Name of both webhook configurations.",
)

timeout_option = click.option(
    "--timeout-seconds",
    type=click.IntRange(1, 30),
    default=3,
    show_default=True,
    help="Time that API servers wait for a response.",
)

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least level of an event in the log.",
)

node_facts_option = click.option(
    "--node-facts/--no-node-facts",
    "with_nodes",
    default=True,
    help="Use the cluster's nodes, namespaces, classes and claims in decisions. The API server "
    "then calls gpufence for every Pod with a node selection. Rules that need these facts "
    "fail closed without them. Default: on in a cluster.",
)

ca_secret_option = name_option(
    "--ca-secret", default="gpufence-ca", text="Secret with the CA and its key."
)

serving_secret_option = name_option(
    "--serving-secret",
    default="gpufence-serving",
    text="Secret with the serving certificate, which replicas mount.",
)


# Times.

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_SECONDS["h"] = 3600.0
_PART = r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


def parse_duration(value: str) -> timedelta:
    """Parse a duration as Go writes them: ``90s``, ``1h30m``, ``8760h``.

    Source: Go, ``time.ParseDuration``. Negative durations are invalid here.
    """
    if value == "0":
        return timedelta(0)
    if not _DURATION.fullmatch(value):
        raise click.BadParameter(
            f"{value!r:.40} is not a duration; write it like 24h, 90m or 1h30m"
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(value))
    return timedelta(seconds=seconds)


def lifetime_option(name: str, default: str, text: str) -> Decorator:
    """Return an option for a duration, as a ``timedelta``."""
    return click.option(
        name,
        type=parse_duration,
        default=default,
        show_default=True,
        metavar="TIME",
        help=text,
    )

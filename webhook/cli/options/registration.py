"""The options that say how API servers reach gpufence, for those commands that register it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

DEFAULT_NAME = "gpufence"
_HTTPS = 443


def _service(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[str, str, int] | None:
    if value is None:
        return None
    namespace, _, rest = value.partition("/")
    name, _, port = rest.partition(":")
    if not namespace or not name or not (port or "443").isdecimal():
        raise click.BadParameter(
            f"{value!r} is no Service; write NAMESPACE/NAME or NAMESPACE/NAME:PORT"
        )
    return namespace, name, int(port or _HTTPS)


def _pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is no pair; write KEY=VALUE")
        pairs[key] = text
    return pairs


def _url(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if value and not value.startswith("https://"):
        raise click.BadParameter(f"{value!r} must begin with https://, as API servers require")
    return value.rstrip("/")


_OPTIONS = (
    click.option(
        "--name",
        "configuration_name",
        default=DEFAULT_NAME,
        show_default=True,
        metavar="NAME",
        help="The name of both webhook configurations.",
    ),
    click.option(
        "--service",
        callback=_service,
        metavar="NAMESPACE/NAME[:PORT]",
        help="The Service in front of gpufence (port 443 unless given).",
    ),
    click.option(
        "--url",
        default="",
        callback=_url,
        metavar="URL",
        help="Where API servers reach gpufence without a Service: https://HOST:PORT.",
    ),
    click.option(
        "--timeout-seconds",
        type=click.IntRange(1, 30),
        default=3,
        show_default=True,
        help="How long API servers wait for an answer.",
    ),
    click.option(
        "--annotation",
        "annotations",
        callback=_pairs,
        multiple=True,
        metavar="KEY=VALUE",
        help="An annotation for both configurations, such as admissions.enforcer/disabled=true "
        "on AKS; repeatable.",
    ),
    click.option(
        "--exclude-namespace",
        "excluded",
        multiple=True,
        metavar="NAME",
        help="A namespace that is never asked about, beside kube-system, those of the well-known "
        "networks' agents, those that the policy exempts, and gpufence's own; repeatable.",
    ),
    click.option(
        "--node-facts/--no-node-facts",
        "with_nodes",
        default=False,
        help="Whether to take the cluster's nodes, classes and claims into account: API servers "
        "then ask about every Pod with a node selection.",
    ),
)


def registration_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one argument, ``registration``."""

    @functools.wraps(command)
    def with_registration(
        configuration_name: str,
        service: tuple[str, str, int] | None,
        url: str,
        timeout_seconds: int,
        annotations: dict[str, str],
        excluded: tuple[str, ...],
        with_nodes: bool,
        **others: Any,
    ) -> Any:
        from webhook.registration.configurations import Registration

        if service and url:
            raise click.UsageError("--service and --url are two ways to reach gpufence: give one")
        own = {service[0]} if service else set()
        registration = Registration(
            name=configuration_name,
            service=service,
            url=url,
            timeout_seconds=timeout_seconds,
            annotations=annotations,
            excluded_namespaces=frozenset({*own, *excluded}),
            with_nodes=with_nodes,
        )
        return command(registration=registration, **others)

    decorated: Callable[..., Any] = with_registration
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated

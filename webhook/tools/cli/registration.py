"""The options of the webhook configurations, for commands that write, print or check them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import click

from policies.kubernetes.quantity import is_subdomain
from webhook.controller.text.objects import Registration
from webhook.tools.cli.flags import (
    as_argument,
    configuration_name_option,
    name_option,
    node_facts_option,
    timeout_option,
)


def _service(value: str) -> tuple[str, str, int]:
    namespace, _, rest = value.partition("/")
    name, _, port = rest.partition(":")
    port = port or "443"
    is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
    if not (is_subdomain(namespace) and is_subdomain(name) and is_port):
        raise click.BadParameter(
            f"{value!r} is not a Service. Write NAMESPACE/NAME or NAMESPACE/NAME:PORT."
        )
    return namespace, name, int(port)


def _pair(value: str) -> tuple[str, str]:
    key, equals, text = value.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{value!r} is not a pair. Write KEY=VALUE.")
    return key, text


def _url(value: str) -> str:
    if not value:
        return value
    if not value.startswith("https://"):
        raise click.BadParameter(f"{value!r} must begin with https://: API servers require it.")
    try:
        parts = urlsplit(value)
        is_valid = bool(parts.hostname) and parts.port != 0 and not set(value) & set("?#@ ")
    except ValueError:
        is_valid = False
    if not is_valid:
        raise click.BadParameter(
            f"{value!r} is not the address of a webhook. Write https://HOST:PORT, without user, "
            "query and fragment, which API servers reject."
        )
    return value.rstrip("/")


def make_registration(
    configuration_name: str,
    service: tuple[str, str, int] | None,
    url: str,
    timeout_seconds: int,
    annotations: tuple[tuple[str, str], ...],
    excluded: tuple[str, ...],
    with_nodes: bool,
    fence_policy: str | None,
    **_others: Any,
) -> Registration:
    """Return the registration for the options of a command, ``registration_options`` among them."""
    if service and url:
        raise click.UsageError("--service and --url exclude each other.")
    own = {service[0]} if service else set()
    return Registration(
        name=configuration_name,
        service=service,
        url=url,
        timeout_seconds=timeout_seconds,
        annotations=dict(annotations),
        excluded_namespaces=frozenset({*own, *excluded}),
        with_nodes=with_nodes,
        fence_policy=fence_policy or "",
    )


registration_options = as_argument(
    "registration",
    make_registration,
    configuration_name_option,
    click.option(
        "--service",
        type=_service,
        metavar="NAMESPACE/NAME[:PORT]",
        help="Service of gpufence. The default port is 443.",
    ),
    click.option(
        "--url",
        default="",
        type=_url,
        metavar="URL",
        help="Address of gpufence without a Service: https://HOST:PORT.",
    ),
    timeout_option,
    click.option(
        "--annotation",
        "annotations",
        type=_pair,
        multiple=True,
        metavar="KEY=VALUE",
        help="Annotation of both configurations, for example admissions.enforcer/disabled=true on "
        "AKS. Repeatable.",
    ),
    name_option(
        "--exclude-namespace",
        "excluded",
        multiple=True,
        text="Namespace for which API servers do not call gpufence, in addition to kube-system, "
        "the namespaces of common CNI agents, exempt namespaces of the policy, and gpufence's "
        "own. Repeatable.",
    ),
    node_facts_option,
)
"""The options of the webhook configurations, and --fence-policy, as one argument."""

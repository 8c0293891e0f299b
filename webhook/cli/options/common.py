"""Options and arguments of several commands."""

from __future__ import annotations

from typing import Any

import click

from policies.kubernetes.quantity import is_subdomain
from webhook.cli.policy.policy_choice import PolicyChoice, choose_policy

# For completion only: the reader reports files that do not exist or are not readable.
PATH = click.Path(readable=False)

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATH)


def valid_name(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Return the name of an object, or the names of a repeatable option, if they are valid."""
    for name in [value] if isinstance(value, str) else value or ():
        # A name becomes part of a URL, where a slash or a question mark would change the request.
        if not is_subdomain(name):
            raise click.BadParameter(
                f"{name!r} is not a valid name: use up to 253 lower-case letters, digits, '-' and "
                "'.', with a letter or a digit at both ends."
            )
    return value


def namespaced_name(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, str] | None:
    """Return the namespace and the name of an object."""
    if value is None:
        return None
    namespace, _, name = value.partition("/")
    if not namespace or not name:
        raise click.BadParameter(f"{value!r} is incomplete. Write {param.make_metavar(ctx)}.")
    return valid_name(ctx, param, namespace), valid_name(ctx, param, name)


def _choose_policy(
    ctx: click.Context, _param: click.Parameter, value: str | None
) -> PolicyChoice | None:
    return None if ctx.resilient_parsing else choose_policy(value)


policy_file_option = click.option(
    "--policy",
    "policy_path",
    type=PATH,
    metavar="FILE",
    help="Policy file. The default is gpufence's default policy.",
)

policy_option = click.option(
    "--policy",
    "policy_choice",
    type=PATH,
    metavar="FILE",
    callback=_choose_policy,
    help="Policy file. The default is the file that the environment variable GPUFENCE_POLICY "
    "names, or the field policy of the nearest .gpufence.yaml, from the working directory upwards; "
    "otherwise gpufence's default policy.",
)

namespace_option = click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Namespace of objects that do not set one.",
)

exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Skip files and directories below a PATH, by name (charts, '*.tmpl.yaml') or by relative "
    "path ('overlays/*/dev', 'base/**/test'). Repeatable. A file that PATH names is always read.",
)

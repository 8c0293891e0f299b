"""Options and arguments that several commands share."""

from __future__ import annotations

import click

# For completion: whether a file is there and may be read, its reader says.
PATH = click.Path(readable=False)

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATH)

policy_option = click.option(
    "--policy",
    "policy_path",
    type=PATH,
    metavar="FILE",
    help="The policy to go by; without one, the policy that ships with gpufence.",
)

namespace_option = click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    metavar="NAME",
    help="The namespace of objects that name none.",
)

exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out files and folders below a PATH, by name (charts, '*.tmpl.yaml') or by path "
    "from there ('overlays/*/dev', 'base/**/test'). May be given several times. A file that is "
    "named is read all the same.",
)

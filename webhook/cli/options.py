"""Options and arguments that several commands share."""

from __future__ import annotations

import click

# The types of paths are for completion: whether a file is there, its reader says.
paths_argument = click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path()
)

policy_option = click.option(
    "--policy",
    "policy_path",
    type=click.Path(),
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
